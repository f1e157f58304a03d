-- Driven by test_neovim.py: uses the plugin on a script as a person does, and prints what the editor then shows.
-- From the environment: AOTLENS_CMD (words split at |), AOTLENS_TARGET, AOTLENS_LINE (of the finding, from 1).

local bufnr = vim.api.nvim_get_current_buf()
local target = vim.env.AOTLENS_TARGET or ''
local line = tonumber(vim.env.AOTLENS_LINE)

local function say(text)
  io.stdout:write(text:gsub('\n', '\\n') .. '\n')
end

local function wait(what, condition, timeout_ms)
  if not vim.wait(timeout_ms or 120000, condition, 20) then
    error('waited in vain for ' .. what .. '; messages: ' .. vim.fn.execute('messages'))
  end
end

local function choosing(title, act)
  local select = vim.ui.select
  vim.ui.select = function(items, options, done)
    for index, item in ipairs(items) do
      local text = options.format_item and options.format_item(item) or item
      if text:find(title, 1, true) then
        return done(item, index)
      end
    end
    error(title .. ' is not offered')
  end
  act()
  return function()
    vim.ui.select = select
  end
end

local function say_diagnostics(label)
  for _, one in ipairs(vim.diagnostic.get(bufnr)) do
    say(('%s %d:%d %s %s'):format(label, one.lnum + 1, one.col, one.source, one.message))
  end
end

local function place(buffer, row, character)
  return { textDocument = { uri = vim.uri_from_bufnr(buffer) }, position = { line = row, character = character } }
end

local function ask(buffer, method, params)
  for _, answer in pairs(vim.lsp.buf_request_sync(buffer, method, params, 120000) or {}) do
    return answer.result
  end
end

vim.bo.filetype = 'python'
require('aotlens').setup({ cmd = vim.split(vim.env.AOTLENS_CMD, '|', { plain = true }) })
wait('a client', function()
  return require('aotlens.client').of(bufnr) ~= nil
end)
wait('lenses before the trace', function()
  return #vim.lsp.codelens.get(bufnr) > 0
end)
assert(#vim.diagnostic.get(bufnr) == 0, 'diagnostics before the trace')

vim.cmd('AotlensTrace ' .. target)
wait('diagnostics', function()
  return #vim.diagnostic.get(bufnr) > 0
end)
say_diagnostics('DIAGNOSTIC')
local lens_line
wait('lenses after the trace', function()
  for _, lens in ipairs(vim.lsp.codelens.get(bufnr)) do
    lens_line = lens.command.title == 'backward' and lens.range.start.line + 1 or lens_line
  end
  return lens_line
end)
for _, lens in ipairs(vim.lsp.codelens.get(bufnr)) do
  say('LENS ' .. (lens.range.start.line + 1) .. ' ' .. lens.command.title)
end
local text = vim.api.nvim_buf_get_lines(bufnr, line - 1, line, false)[1]
say('HOVER ' .. ask(bufnr, 'textDocument/hover', place(bufnr, line - 1, #text - 1)).contents.value)
say('COMPLETES ' .. table.concat(vim.fn.getcompletion('AotlensShow ', 'cmdline'), ' '))
say('GPUS ' .. table.concat(vim.fn.getcompletion('AotlensGpu h100', 'cmdline'), ', '))
local name = target ~= '' and target or 'score'
say('PARTS ' .. table.concat(vim.fn.getcompletion('AotlensShow ' .. name .. ' ', 'cmdline'), ' '))

-- A lens opens a graph, which cannot be edited, and leads back to the line of a node.
vim.api.nvim_win_set_cursor(0, { lens_line, 0 })
local restore = choosing('backward', vim.lsp.codelens.run)
wait('the graph', function()
  return vim.startswith(vim.api.nvim_buf_get_name(0), 'aotlens:')
end)
restore()
local graph = vim.api.nvim_get_current_buf()
local row = vim.api.nvim_win_get_cursor(0)[1]
say('GRAPH ' .. vim.api.nvim_buf_get_lines(graph, row - 1, row, false)[1])
say('MODIFIABLE ' .. tostring(vim.bo[graph].modifiable))
for number, content in ipairs(vim.api.nvim_buf_get_lines(graph, row, -1, false)) do
  if content:find(' = ', 1, true) then
    local found = ask(graph, 'textDocument/definition', place(graph, row + number - 1, 6))
    local origin = type(found) == 'table' and (found[1] or found)
    if origin and origin.uri then
      say('DEFINITION ' .. (origin.range.start.line + 1))
      break
    end
  end
end
vim.cmd('close')

-- A fix is applied, and undo brings the finding back.
if vim.env.AOTLENS_FIX then
  vim.api.nvim_win_set_cursor(0, { line, #text - 1 })
  restore = choosing(vim.env.AOTLENS_FIX, vim.lsp.buf.code_action)
  wait('the fix', function()
    return vim.api.nvim_buf_get_lines(bufnr, line - 1, line, false)[1] ~= text
  end)
  restore()
  say('FIXED ' .. vim.api.nvim_buf_get_lines(bufnr, line - 1, line, false)[1])
  vim.cmd('silent undo')
end

if vim.env.AOTLENS_TUI then
  vim.cmd('AotlensTui ' .. target)
  wait('the terminal app', function()
    return table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, false), '\n'):find('1 Over', 1, true) -- cut short where the window is narrow
  end)
  say('TUI')
  vim.fn.chansend(vim.bo.channel, 'q')
  wait('its end', function()
    return vim.fn.jobwait({ vim.bo.channel }, 0)[1] ~= -1
  end)
end
if vim.lsp.inlay_hint then
  wait('hints', function()
    return #vim.lsp.inlay_hint.get({ bufnr = bufnr }) > 0
  end)
  for _, hint in ipairs(vim.lsp.inlay_hint.get({ bufnr = bufnr })) do
    say('HINT ' .. (hint.inlay_hint.position.line + 1) .. ' ' .. tostring(hint.inlay_hint.label))
  end
end
vim.cmd('qa!')
