-- wrk's script: rotates the request bodies of a file, a line each, and prints its figures as JSON.
local requests, sent = {}, 0

function init(arguments)
  for body in io.lines(arguments[1]) do
    table.insert(requests, wrk.format("POST", nil, { ["Content-Type"] = "application/json" }, body))
  end
end

function request()
  sent = sent + 1
  return requests[sent % #requests + 1]
end

function done(summary, latency)
  local e = summary.errors
  print(string.format(
    'measured {"requests": %d, "seconds": %.6f, "p50_ms": %.3f, "p99_ms": %.3f, "max_ms": %.3f, "errors": %d}',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    latency.max / 1e3, e.connect + e.read + e.write + e.status + e.timeout))
end
