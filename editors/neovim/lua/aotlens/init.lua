-- aotlens for Neovim 0.7 and newer: require('aotlens').setup({ settings = { … } })
--
-- Starts `aotlens lsp` for Python buffers, adds the :Aotlens… commands, keeps code lenses and inlay hints up to
-- date, and opens the graphs of traced targets as read-only buffers. Diagnostics, hover, code actions and
-- go-to-definition are Neovim's own.

local clients = require('aotlens.client')
local documents = require('aotlens.documents')

local M = {}

local defaults = {
  cmd = { 'aotlens', 'lsp' },
  filetypes = { 'python' },
  root_markers = { 'pyproject.toml', '.git' },
  settings = {}, -- docs/editors.md lists them
  codelens = true, -- keep the code lenses up to date
  inlay_hints = true, -- show them, from Neovim 0.10 on
  on_attach = nil, -- function(client, bufnr), for keys of your own
}

local IDLE = { running = {}, traced = 0 }
local status = IDLE

--- For a status line: 'aotlens: tracing score', or '' while nothing is traced.
function M.status()
  local names = {}
  for _, one in ipairs(status.running) do
    local name = type(one.qualname) == 'string' and one.qualname or vim.fn.fnamemodify(one.script, ':t')
    table.insert(names, name)
  end
  return #names > 0 and 'aotlens: tracing ' .. table.concat(names, ', ') or ''
end

local function refresh_lenses(bufnr)
  if vim.api.nvim_buf_is_loaded(bufnr) and clients.of(bufnr) then
    vim.api.nvim_buf_call(bufnr, function()
      vim.lsp.codelens.refresh(vim.fn.has('nvim-0.10') == 1 and { bufnr = bufnr } or nil)
    end)
  end
end

local function on_status(_, told)
  local ended = #told.running < #status.running or told.traced == 0
  status = told
  if ended then
    vim.schedule(documents.refresh)
  end
  vim.cmd('redrawstatus')
end

local function storage_source(path, markers)
  local folder = vim.fn.fnamemodify(path, ':h')
  local found = vim.fs and vim.fs.find(markers, { upward = true, path = folder })[1]
  return found and vim.fn.fnamemodify(found, ':h') or vim.fn.getcwd()
end

local function attached(client, bufnr, options)
  if options.codelens then
    vim.api.nvim_create_autocmd({ 'BufEnter', 'InsertLeave', 'BufWritePost' }, {
      group = vim.api.nvim_create_augroup('aotlens_' .. bufnr, { clear = true }),
      buffer = bufnr,
      callback = function()
        refresh_lenses(bufnr)
      end,
    })
    refresh_lenses(bufnr)
  end
  if options.inlay_hints and vim.lsp.inlay_hint then
    vim.lsp.inlay_hint.enable(true, { bufnr = bufnr })
  end
  if options.on_attach then
    options.on_attach(client, bufnr)
  end
end

local function attach(bufnr, options)
  local path = vim.api.nvim_buf_get_name(bufnr)
  if path == '' or vim.bo[bufnr].buftype ~= '' then
    return
  end
  local known = { virtualDocuments = true, terminal = true, status = true }
  clients.start({
    name = 'aotlens',
    cmd = options.cmd,
    root_dir = storage_source(path, options.root_markers),
    init_options = vim.tbl_extend('force', options.settings, known),
    handlers = { ['aotlens/status'] = on_status, ['window/showDocument'] = documents.on_show },
    on_attach = function(client, buffer)
      attached(client, buffer, options)
    end,
  }, bufnr)
end

--- Send one of the server's commands for a buffer; `done(error, result)` is called with its answer.
function M.command(bufnr, name, arguments, done)
  local client = clients.of(bufnr)
  if not client then
    vim.notify('aotlens is not attached to this buffer', vim.log.levels.WARN)
    return
  end
  clients.request(client, 'workspace/executeCommand', { command = name, arguments = arguments }, function(err, result)
    if err then
      vim.notify('aotlens: ' .. err.message, vim.log.levels.ERROR)
    end
    if done then
      done(err, result)
    end
  end, bufnr)
end

--- Run a trace, and show what came of it: the file on disk is traced, so it is saved first.
local function run(name, arguments, done)
  local bufnr = vim.uri_to_bufnr(arguments[1])
  if vim.api.nvim_buf_is_loaded(bufnr) and vim.bo[bufnr].modified then
    vim.api.nvim_buf_call(bufnr, function()
      vim.cmd('silent update')
    end)
  end
  M.command(bufnr, name, arguments, function(err, result)
    refresh_lenses(bufnr)
    if done then
      done(err, result)
    end
  end)
end

local function open(name, arguments)
  M.command(vim.api.nvim_get_current_buf(), name, arguments, function(_, answer)
    documents.open(answer)
  end)
end

--- Open the terminal app on a target: it starts with the last trace.
local function open_tui(arguments)
  M.command(vim.api.nvim_get_current_buf(), 'aotlens.tui', arguments, function(_, answer)
    if type(answer) == 'table' and type(answer.command) == 'table' then
      vim.cmd('tabnew')
      vim.fn.termopen(answer.command, { cwd = type(answer.cwd) == 'string' and answer.cwd or nil })
      vim.cmd('startinsert')
    end
  end)
end

local function here(name)
  local arguments = { vim.uri_from_bufnr(0) }
  if name and name ~= '' then
    table.insert(arguments, name)
  end
  return arguments
end

--- Trace the file of the current buffer, or one target of it.
function M.trace(name, done)
  run('aotlens.trace', here(name), done)
end

--- Trace, and compare the first call of each target with eager.
function M.verify(name, done)
  run('aotlens.verify', here(name), done)
end

--- Run the script as `aotlens fit` does, and show the memory of its training step.
function M.fit(done)
  run('aotlens.fit', here(), done)
end

--- Trace with the kernels for a GPU, which the server asks for without a name.
function M.gpu(name, done)
  local arguments = here()
  if name and name ~= '' then
    vim.list_extend(arguments, { vim.NIL, name })
  end
  run('aotlens.chooseGpu', arguments, done)
end

--- Open a program of a traced target: `forward`, `backward`, `wrapper`, …
function M.show(name, part)
  open('aotlens.show', { vim.uri_from_bufnr(0), name, part })
end

local function traced_targets()
  local client = clients.of(0)
  local params = { command = 'aotlens.targets', arguments = { vim.uri_from_bufnr(0) } }
  return client and clients.ask(client, 'workspace/executeCommand', params, 1000, 0) or {}
end

--- Completes the name of a traced target, and then one of its programs.
local function complete(lead, line)
  local words = vim.split(vim.trim(line:sub(1, #line - #lead)), '%s+')
  local offered = {}
  for _, target in ipairs(traced_targets()) do
    if #words == 1 then
      table.insert(offered, target.qualname)
    elseif target.qualname == words[2] then
      offered = target.parts
    end
  end
  return vim.tbl_filter(function(word)
    return vim.startswith(word, lead)
  end, offered)
end

local function complete_name(lead, line)
  return #vim.split(vim.trim(line:sub(1, #line - #lead)), '%s+') == 1 and complete(lead, line) or {}
end

local function complete_gpu(lead)
  local client = clients.of(0)
  local params = { command = 'aotlens.gpus', arguments = {} }
  local answer = client and clients.ask(client, 'workspace/executeCommand', params, 1000, 0) or {}
  local names = { 'no kernels' }
  for _, gpu in ipairs(answer.gpus or {}) do
    table.insert(names, gpu.name)
  end
  return vim.tbl_filter(function(name)
    return vim.startswith(name:lower(), lead:lower())
  end, names)
end

local COMMANDS = {
  Trace = {
    function(given)
      M.trace(given.args)
    end,
    { nargs = '?', complete = complete_name, desc = 'Trace this file, or one target of it' },
  },
  Verify = {
    function(given)
      M.verify(given.args)
    end,
    { nargs = '?', complete = complete_name, desc = 'Trace and compare with eager' },
  },
  Fit = {
    function()
      M.fit()
    end,
    { desc = 'Will it fit? Measure the memory of the training step' },
  },
  Gpu = {
    function(given)
      M.gpu(given.args)
    end,
    { nargs = '?', complete = complete_gpu, desc = 'Trace with the kernels for a GPU' },
  },
  Show = {
    function(given)
      M.show(given.fargs[1], given.fargs[2] or 'forward')
    end,
    { nargs = '+', complete = complete, desc = 'Open a program of a traced target' },
  },
  Export = {
    function(given)
      local file = given.fargs[2] and vim.fn.fnamemodify(given.fargs[2], ':p')
      open('aotlens.export', { vim.uri_from_bufnr(0), given.fargs[1], file })
    end,
    { nargs = '+', complete = complete_name, desc = 'Write a traced target as a module' },
  },
  Tui = {
    function(given)
      open_tui(here(given.args))
    end,
    { nargs = '?', complete = complete_name, desc = 'Open the terminal app' },
  },
  Explain = {
    function(given)
      open('aotlens.explain', { given.args })
    end,
    { nargs = 1, desc = 'Explain a code, as AL101' },
  },
  Cancel = {
    function()
      M.command(vim.api.nvim_get_current_buf(), 'aotlens.cancel', { vim.uri_from_bufnr(0) })
    end,
    { desc = 'Stop the traces of this file' },
  },
  Clear = {
    function()
      local bufnr = vim.api.nvim_get_current_buf()
      M.command(bufnr, 'aotlens.clear', {}, function()
        refresh_lenses(bufnr)
      end)
    end,
    { desc = 'Forget every trace, and what is kept on disk' },
  },
  Restart = {
    function()
      M.command(vim.api.nvim_get_current_buf(), 'aotlens.restart', {})
    end,
    { desc = 'Restart the process that traces' },
  },
}

--- What the lenses and code actions carry: Neovim itself would send them and drop the answer.
local function lens_commands()
  local running = {
    'aotlens.trace',
    'aotlens.verify',
    'aotlens.tryFixes',
    'aotlens.fit',
    'aotlens.lowerPeak',
    'aotlens.chooseGpu',
  }
  for _, name in ipairs(running) do
    vim.lsp.commands[name] = function(command)
      run(name, command.arguments)
    end
  end
  for _, name in ipairs({ 'aotlens.show', 'aotlens.explain' }) do
    vim.lsp.commands[name] = function(command)
      open(name, command.arguments)
    end
  end
  vim.lsp.commands['aotlens.openTui'] = function(command)
    open_tui(command.arguments)
  end
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
  documents.setup(group)
  lens_commands()
  for name, definition in pairs(COMMANDS) do
    vim.api.nvim_create_user_command('Aotlens' .. name, definition[1], definition[2])
  end
  for _, bufnr in ipairs(vim.api.nvim_list_bufs()) do
    if vim.api.nvim_buf_is_loaded(bufnr) and vim.tbl_contains(options.filetypes, vim.bo[bufnr].filetype) then
      attach(bufnr, options)
    end
  end
end

return M
