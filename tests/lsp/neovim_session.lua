-- Driven by test_neovim.py: opens a script, traces one target, prints what the editor then shows.
-- Arguments by environment: AOTLENS_CMD (words split at |), AOTLENS_TARGET, AOTLENS_LINE (of the hover).

local function say(text)
  io.stdout:write(text:gsub('\n', '\\n') .. '\n')
end

require('aotlens').setup({ cmd = vim.split(vim.env.AOTLENS_CMD, '|', { plain = true }) })
local bufnr = vim.api.nvim_get_current_buf()
vim.bo.filetype = 'python'

local traced
assert(vim.wait(30000, function()
  return #vim.lsp.buf_get_clients(bufnr) > 0 or next(vim.lsp.buf_get_clients(bufnr)) ~= nil
end, 50), 'no client attached')
assert(#vim.diagnostic.get(bufnr) == 0, 'diagnostics before the trace')
require('aotlens').trace(vim.env.AOTLENS_TARGET, function(_, result)
  traced = result or {}
end)
assert(vim.wait(120000, function() return traced ~= nil end, 50), 'the trace did not end')
say('TRACED ' .. vim.inspect(traced.targets or traced))
vim.wait(2000, function() return #vim.diagnostic.get(bufnr) > 0 end, 50)
for _, one in ipairs(vim.diagnostic.get(bufnr)) do
  say(('DIAGNOSTIC %d:%d %s %s'):format(one.lnum + 1, one.col, one.source, one.message))
end
local line = tonumber(vim.env.AOTLENS_LINE)
local text = vim.api.nvim_buf_get_lines(bufnr, line - 1, line, false)[1]
local place = {
  textDocument = { uri = vim.uri_from_bufnr(bufnr) },
  position = { line = line - 1, character = #text - 1 },
}
local function ask(method, params)
  for _, answer in pairs(vim.lsp.buf_request_sync(bufnr, method, params, 10000) or {}) do
    return answer.result
  end
end
say('HOVER ' .. ask('textDocument/hover', place).contents.value)
for _, lens in ipairs(ask('textDocument/codeLens', { textDocument = place.textDocument })) do
  say('LENS ' .. (lens.range.start.line + 1) .. ' ' .. lens.command.title)
end
if vim.lsp.inlay_hint then
  vim.lsp.inlay_hint.enable(true, { bufnr = bufnr })
  vim.wait(5000, function() return #vim.lsp.inlay_hint.get({ bufnr = bufnr }) > 0 end, 50)
  for _, hint in ipairs(vim.lsp.inlay_hint.get({ bufnr = bufnr })) do
    say('HINT ' .. (hint.inlay_hint.position.line + 1) .. ' ' .. tostring(hint.inlay_hint.label))
  end
end
vim.cmd('qa!')
