-- results: read what succeeded tasks have returned.
-- KEYS[1]: prefix. ARGV: now, then uuids.
-- Returns: now, and the history of each task that has succeeded, in the order of the request; false of others.
-- uses: prelude
local seqs = {}
for i = 2, #ARGV do seqs[i - 1] = ARGV[i] end
seqs = read_fields(IDS, seqs)
for i = 1, #seqs do seqs[i] = seqs[i] or '' end
local histories = read_fields(HISTORY, seqs)
for i = 1, #histories do
  local history = histories[i]
  local start = history and history:byte(7) == 159 and 8 or 10 -- behind the number of fields, see record_format.lua
  if history and history:sub(start, start + 9) ~= '\169succeeded' then histories[i] = false end
end
return {string.format('%.17g', now), histories}
