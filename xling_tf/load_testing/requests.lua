-- wrk's script: rotates the bodies of a file, a line each, and ends with one line of JSON.
-- Arguments: the file; "statuses" to count the answers' statuses, which costs wrk a little time.

local threads = {}
local requests = {}
local asked = 0

function setup(thread)
  table.insert(threads, thread)
end

function init(arguments)
  statuses = {}
  for body in io.lines(arguments[1]) do
    local headers = { ["Content-Type"] = "application/json" }
    table.insert(requests, wrk.format("POST", nil, headers, body))
  end
  if arguments[2] == "statuses" then
    response = function(status)
      local key = tostring(status)
      statuses[key] = (statuses[key] or 0) + 1
    end
  end
end

function request()
  asked = asked + 1
  return requests[asked % #requests + 1]
end

function done(summary, latency)
  local counted = {}
  for _, thread in ipairs(threads) do
    for status, count in pairs(thread:get("statuses")) do
      table.insert(counted, string.format('"%s": %d', status, count))
    end
  end
  local errors = summary.errors
  print(string.format(
    'measured {"requests": %d, "seconds": %.6f, "p50_ms": %.3f, "p99_ms": %.3f, "max_ms": %.3f, '
      .. '"errors": {"connect": %d, "read": %d, "write": %d, "status": %d, "timeout": %d}, '
      .. '"statuses": {%s}}',
    summary.requests, summary.duration / 1e6,
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, latency.max / 1e3,
    errors.connect, errors.read, errors.write, errors.status, errors.timeout,
    table.concat(counted, ", ")))
end
