local function widen() -- a server searches small hashes from end to end, unless something in them is long
  for _, key in ipairs({IDS, PAST, HELD}) do call('HSET', key, '\0', ('-'):rep(65)) end
end
