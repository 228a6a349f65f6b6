-- read_series: entries of a series between two times, in order.
-- KEYS[1]: prefix. ARGV: now, series, from, to (ms), the most to read, 1 for the newest first.
-- Returns: keys, entries as "revision:data".
-- uses: series
local keys
if ARGV[6] == '1' then
  keys = call('ZREVRANGEBYSCORE', SERIES .. ARGV[2], ARGV[4], ARGV[3], 'LIMIT', 0, ARGV[5])
else
  keys = call('ZRANGEBYSCORE', SERIES .. ARGV[2], ARGV[3], ARGV[4], 'LIMIT', 0, ARGV[5])
end
return {keys, read_fields(SERIES_DATA .. ARGV[2], keys)}
