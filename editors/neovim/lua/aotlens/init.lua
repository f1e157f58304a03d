-- aotlens for Neovim 0.7 and newer: require('aotlens').setup({ settings = { ... } })
--
-- Starts `aotlens lsp` for Python buffers and adds :AotlensTrace [NAME] and :AotlensShow NAME PART.
-- Diagnostics, hover, code lenses and inlay hints are Neovim's own.

local M = {}

local defaults = {
  cmd = { 'aotlens', 'lsp' },
  filetypes = { 'python' },
  root_markers = { 'pyproject.toml', '.git' },
  settings = {},
}

local function root_of(path, markers)
  local found = vim.fs and vim.fs.find(markers, { upward = true, path = vim.fn.fnamemodify(path, ':h') })[1]
  return found and vim.fn.fnamemodify(found, ':h') or vim.fn.getcwd()
end

local clients = {} -- by root, for Neovim 0.7, which has no vim.lsp.start

local function attach(bufnr, options)
  local path = vim.api.nvim_buf_get_name(bufnr)
  if path == '' or vim.bo[bufnr].buftype ~= '' then
    return
  end
  local root = root_of(path, options.root_markers)
  local config = {
    name = 'aotlens',
    cmd = options.cmd,
    root_dir = root,
    init_options = next(options.settings) and options.settings or vim.empty_dict(),
  }
  if vim.lsp.start then
    vim.lsp.start(config, { bufnr = bufnr })
  else
    clients[root] = clients[root] or vim.lsp.start_client(config)
    vim.lsp.buf_attach_client(bufnr, clients[root])
  end
end

local function client_of(bufnr)
  local get = vim.lsp.get_clients
  for _, client in pairs(get and get({ bufnr = bufnr }) or vim.lsp.buf_get_clients(bufnr)) do
    if client.name == 'aotlens' then
      return client
    end
  end
end

--- Send one of the server's commands; `done(error, result)` is called with its answer.
function M.command(bufnr, name, arguments, done)
  local client = client_of(bufnr)
  if not client then
    vim.notify('aotlens is not attached to this buffer', vim.log.levels.WARN)
    return
  end
  local params = { command = name, arguments = arguments }
  local answer = function(err, result)
    if err then
      vim.notify('aotlens: ' .. err.message, vim.log.levels.ERROR)
    end
    if done then
      done(err, result)
    end
  end
  if vim.fn.has('nvim-0.11') == 1 then
    client:request('workspace/executeCommand', params, answer, bufnr)
  else
    client.request('workspace/executeCommand', params, answer, bufnr)
  end
end

--- Trace the file of a buffer, or one target of it.
function M.trace(name, done)
  local bufnr = vim.api.nvim_get_current_buf()
  local arguments = { vim.uri_from_bufnr(bufnr) }
  if name and name ~= '' then
    table.insert(arguments, name)
  end
  M.command(bufnr, 'aotlens.trace', arguments, done)
end

--- Open a program of a traced target: `forward`, `backward`, `wrapper`, …
function M.show(name, part)
  local bufnr = vim.api.nvim_get_current_buf()
  M.command(bufnr, 'aotlens.show', { vim.uri_from_bufnr(bufnr), name, part }, function(_, result)
    if type(result) == 'table' and type(result.uri) == 'string' and not result.shown then
      vim.cmd('edit ' .. vim.fn.fnameescape(vim.uri_to_fname(result.uri)))
    end
  end)
end

function M.setup(options)
  options = vim.tbl_deep_extend('force', defaults, options or {})
  local group = vim.api.nvim_create_augroup('aotlens', { clear = true })
  vim.api.nvim_create_autocmd('FileType', {
    group = group,
    pattern = options.filetypes,
    callback = function(event)
      attach(event.buf, options)
    end,
  })
  vim.api.nvim_create_user_command('AotlensTrace', function(given)
    M.trace(given.args)
  end, { nargs = '?', desc = 'Trace this file, or one target of it' })
  vim.api.nvim_create_user_command('AotlensShow', function(given)
    M.show(given.fargs[1], given.fargs[2] or 'forward')
  end, { nargs = '+', desc = 'Open a program of a traced target' })
end

return M
