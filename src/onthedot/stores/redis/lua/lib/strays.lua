-- Strays: ready tasks of sources that nobody there knows. Only asked for by who has a store of its own.
local function take_strays(known, chores) -- ready tasks of sources that nobody there knows: to be ended
  local fields, seen = call('HKEYS', TALLY), {}
  for source in pairs(counts) do fields[#fields + 1] = source .. ':ready' end
  for _, name in ipairs(known) do seen[name] = true end
  for _, field in ipairs(fields) do
    local source = field:match('^(.*):ready$')
    for _, kind in ipairs(source and not seen[source] and {READY, SUSPECT} or {}) do
      while #chores < CHORES do
        flush()
        local first = call('ZRANGE', kind .. source, 0, 0)[1]
        if not first then break end
        local r = load(first:sub(1, 6))
        leave(r, 'ready')
        r.state = 'ready'
        end_as_chore(r, 'stray')
        chores[#chores + 1] = r.seq
      end
    end
    if source then seen[source] = true end
  end
end
