-- A long field in each hash that is looked up by seq or uuid: a small hash would be a listpack, searched from end to end.
-- uses: prelude
local function force_hashtable()
  for _, key in ipairs({IDS, HISTORY, LEASED}) do call('HSET', key, '\0', ('-'):rep(65)) end
end
