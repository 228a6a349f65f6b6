local function force_hashtable() -- a server searches small hashes from end to end, unless something in them is long
  for _, key in ipairs({IDS, HISTORY, LEASED}) do call('HSET', key, '\0', ('-'):rep(65)) end
end
