-- The graphs, wrappers and kernels of traced targets: read-only buffers named aotlens://…, read from the server.

local clients = require('aotlens.client')

local M = {}

local GONE = '# No trace has this document: trace the file again.'
local TIMEOUT_MS = 10000

local function fill(bufnr)
  local client = clients.of(bufnr) or clients.any()
  local uri = vim.api.nvim_buf_get_name(bufnr)
  local page = client and clients.ask(client, 'aotlens/document', { uri = uri }, TIMEOUT_MS, bufnr)
  local has_page = type(page) == 'table' -- JSON's null is vim.NIL, which is true
  local lines = vim.split(has_page and page.text or GONE, '\n', { plain = true })
  vim.bo[bufnr].modifiable = true
  vim.api.nvim_buf_set_lines(bufnr, 0, -1, false, lines)
  vim.bo[bufnr].modifiable = false
  vim.bo[bufnr].modified = false
  return client, has_page and page.languageId or 'text'
end

local function read(bufnr)
  vim.bo[bufnr].buftype = 'nofile'
  vim.bo[bufnr].swapfile = false
  vim.bo[bufnr].bufhidden = 'hide'
  local client, language = fill(bufnr)
  -- For its colours: as a file type it would start the servers that you have for your own Python files.
  vim.bo[bufnr].syntax = language == 'python' and 'python' or ''
  if client then
    vim.lsp.buf_attach_client(bufnr, client.id)
  end
end

--- Read the open documents again: a later trace may have new texts for them.
function M.refresh()
  for _, bufnr in ipairs(vim.api.nvim_list_bufs()) do
    if vim.api.nvim_buf_is_loaded(bufnr) and vim.startswith(vim.api.nvim_buf_get_name(bufnr), 'aotlens:') then
      fill(bufnr)
    end
  end
end

--- Beside the code, in one window for all of them.
local function to_window()
  for _, window in ipairs(vim.api.nvim_tabpage_list_wins(0)) do
    if vim.startswith(vim.api.nvim_buf_get_name(vim.api.nvim_win_get_buf(window)), 'aotlens:') then
      return vim.api.nvim_set_current_win(window)
    end
  end
  vim.cmd('botright vsplit')
end

--- Open a document at a line (from 0).
local function open(uri, line)
  local bufnr = vim.uri_to_bufnr(uri)
  vim.bo[bufnr].buflisted = true
  to_window()
  vim.api.nvim_win_set_buf(0, bufnr)
  pcall(vim.api.nvim_win_set_cursor, 0, { line + 1, 0 }) -- a page of one line has no other
  vim.cmd('normal! zt')
end

--- Open what a command of the server answered with, where the server did not have it opened already.
function M.open(answer)
  if type(answer) == 'table' and type(answer.uri) == 'string' and not answer.shown then
    open(answer.uri, answer.line or 0)
  end
end

--- The server's own request to open one: Neovim's handler would put it over the code.
function M.on_show(_, params)
  open(params.uri, params.selection and params.selection.start.line or 0)
  return { success = true }
end

function M.setup(group)
  vim.api.nvim_create_autocmd('BufReadCmd', {
    group = group,
    pattern = 'aotlens://*',
    callback = function(event)
      read(event.buf)
    end,
  })
end

return M
