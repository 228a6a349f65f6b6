-- Flow counters: the ends of tasks increment them, and waiting tasks wait until one has reached a value. The changes of a call
-- are written once. A counter that has reached the value of a task is dirty until a turn has ended the wait (waits.lua).
-- raised: counter → ends of this call, and those that failed. awaited: counter → the least value that a wait of this call has.
-- uses: tallies
local function count_ends(links, number, failed) -- negative: of tasks that are revived
  for _, name in ipairs(links.increments) do
    local ends = raised[name] or {ended = 0, failed = 0}
    raised[name] = ends
    ends.ended, ends.failed = ends.ended + number, ends.failed + failed
  end
end

local function begin_wait(r, seqs) -- r: the record that the tasks share
  local least = {} -- a wait may name a counter twice
  for _, each in ipairs(r.wait.counters) do least[each[1]] = math.min(least[each[1]] or each[2], each[2]) end
  local list = {}
  for i = 1, #seqs do
    list[2 * i - 1], list[2 * i] = '0', seqs[i]
  end
  buffer_list(orders, P .. 'waiting', list)
  for name, value in pairs(least) do
    local text, list = text_of(value), {}
    for i = 1, #seqs do
      list[2 * i - 1], list[2 * i] = text, seqs[i]
    end
    buffer_list(orders, WAITERS .. name, list)
    awaited[name] = math.min(awaited[name] or value, value)
  end
end

local function write_counters()
  if not next(raised) and not next(awaited) then return end
  -- here: counter_writes
  write_raised()
  check_awaited()
  mark_dirty()
  raised, awaited = {}, {}
end

closing[#closing + 1] = write_counters
