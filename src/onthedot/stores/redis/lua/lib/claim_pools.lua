-- A pool: sources that share slots. Taken by (rank, seq) over all, at most `room` of a source and `total` in all.
local function queues_of(pool, left)
  local found, total = {}, pool[1]
  for i = 2, #pool, 2 do
    local source, most = pool[i], math.min(pool[i + 1], total)
    if most > 0 then most = math.min(most, (source_capacity(source))) end
    left[source] = most
    for _, kind in ipairs(most > 0 and {READY, SUSPECT} or {}) do
      if call('EXISTS', kind .. source) == 1 then
        found[#found + 1] = {
          key = kind .. source, source = source, doubtful = kind == SUSPECT, page = most, offset = 0, next = 1, items = {},
        }
      end
    end
  end
  for _, q in ipairs(found) do q.step = #found > 1 and 2 or 1 end -- one alone needs no ranks to be compared
  return found
end

local function take(pool, taken) -- pool: total, then source and room in turn
  local left, took, number = {}, {}, 0
  local all = queues_of(pool, left)
  while number < pool[1] and parked_now < BATCH do
    local q = first_of(all, left)
    if not q then break end
    q.next = q.next + q.step
    local seq = q.member:sub(1, 6)
    if seq == q.member or may_start_task(q.member) then
      number = number + 1
      taken[#taken + 1] = seq
      log_transition('running', seq)
      left[q.source], took[q.source] = left[q.source] - 1, (took[q.source] or 0) + 1
      if q.doubtful then suspects_left = suspects_left - 1 end
    end
  end
  for _, q in ipairs(all) do
    local passed = q.offset + (q.next - 1) / q.step
    if passed > 0 then call('ZREMRANGEBYRANK', q.key, 0, passed - 1) end
  end
  for source, starts_ in pairs(took) do start(source, starts_) end
end
