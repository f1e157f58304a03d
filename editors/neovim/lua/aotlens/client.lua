-- What differs between Neovim 0.7 and today's: starting a client, finding it, asking it.

local M = {}

local clients = {} -- by root, for versions without vim.lsp.start

--- Start the server for a buffer, or attach the buffer to the one of its folder.
function M.start(config, bufnr)
  if vim.lsp.start then
    return vim.lsp.start(config, { bufnr = bufnr })
  end
  config.on_exit = function()
    clients[config.root_dir] = nil
  end
  clients[config.root_dir] = clients[config.root_dir] or vim.lsp.start_client(config)
  vim.lsp.buf_attach_client(bufnr, clients[config.root_dir])
end

function M.of(bufnr)
  local get = vim.lsp.get_clients or function(filter)
    return vim.lsp.buf_get_clients(filter.bufnr)
  end
  for _, client in pairs(get({ bufnr = bufnr })) do
    if client.name == 'aotlens' then
      return client
    end
  end
end

--- Every client of ours, for a document that belongs to none yet.
function M.any()
  for _, client in pairs((vim.lsp.get_clients or vim.lsp.get_active_clients)()) do
    if client.name == 'aotlens' then
      return client
    end
  end
end

function M.request(client, method, params, done, bufnr)
  if vim.fn.has('nvim-0.11') == 1 then
    return client:request(method, params, done, bufnr)
  end
  return client.request(method, params, done, bufnr)
end

--- The answer, or nil when there is none within the time.
function M.ask(client, method, params, timeout_ms, bufnr)
  local answer
  if vim.fn.has('nvim-0.11') == 1 then
    answer = client:request_sync(method, params, timeout_ms, bufnr)
  else
    answer = client.request_sync(method, params, timeout_ms, bufnr)
  end
  return answer and answer.result
end

function M.encoding(client)
  return client.offset_encoding or 'utf-16'
end

return M
