-- Series: the keys of the entries in order, and the entries as "revision:data".
-- uses: prelude
local SERIES, SERIES_DATA = P .. 'series:', P .. 'series_data:'

local function drop_entries(series, keys)
  if #keys == 0 then return end
  call('ZREM', SERIES .. series, unpack(keys))
  call('HDEL', SERIES_DATA .. series, unpack(keys))
end

local function drop_series(rules, limit) -- of each series: its name, the age in ms and the number that are kept; "" is any
  for i = 1, #rules, 3 do
    local series, keep, most = rules[i], tonumber(rules[i + 1]), tonumber(rules[i + 2])
    if keep then
      drop_entries(series, call('ZRANGEBYSCORE', SERIES .. series, '-inf', '(' .. string.format('%.0f', at - keep), 'LIMIT', 0, limit))
    end
    if most then
      local surplus = math.min(limit, call('ZCARD', SERIES .. series) - most)
      if surplus > 0 then drop_entries(series, call('ZRANGE', SERIES .. series, 0, surplus - 1)) end
    end
  end
end
