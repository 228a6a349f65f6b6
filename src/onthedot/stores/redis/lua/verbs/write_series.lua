-- write_series: write entries of series, and remove others in the same step, unless one of these has changed.
-- KEYS[1]: prefix. ARGV: now, how many are removed; series, key and revision of each; then series, key, at and data of the new ones.
-- Returns: 1; or 0, and nothing has changed.
-- uses: series
local last = 2 + 3 * tonumber(ARGV[2])
for i = 3, last, 3 do
  local entry = call('HGET', SERIES_DATA .. ARGV[i], ARGV[i + 1])
  if (entry and entry:match('^%d+') or '0') ~= ARGV[i + 2] then return 0 end
end
for i = 3, last, 3 do drop_entries(ARGV[i], {ARGV[i + 1]}) end
for i = last + 1, #ARGV, 4 do
  local revision = call('HINCRBY', SEQUENCES, 'series', 1)
  call('ZADD', SERIES .. ARGV[i], ARGV[i + 2], ARGV[i + 1])
  call('HSET', SERIES_DATA .. ARGV[i], ARGV[i + 1], string.format('%.0f', revision) .. ':' .. ARGV[i + 3])
end
return 1
