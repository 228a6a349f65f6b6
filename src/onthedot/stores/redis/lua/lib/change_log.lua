-- The change feed: one stream entry per call. Its fields are the time (at) and, for each source and new state,
-- '<state>:<source>': seqs; 'run:<state>:<source>': the first and the last of consecutive seqs; and
-- 'gone:<state>:<source>': uuids of tasks that are not kept. The id of an entry is the number of transitions so far.
-- uses: tallies
local transitions, transition_count = {}, 0

local function log_transition(source, state, seqs, number) -- state: 'gone:<state>' with uuids instead of seqs
  append(transitions, state .. ':' .. source, seqs)
  transition_count = transition_count + number
end

local function log_range(source, state, first, last, number) -- consecutive seqs
  append(transitions, 'run:' .. state .. ':' .. source, first .. last)
  transition_count = transition_count + number
end

local function write_transitions()
  if transition_count == 0 then return end
  local number = next_number('transitions', transition_count)
  local row = {'at', at}
  for field, list in pairs(transitions) do
    row[#row + 1] = field
    row[#row + 1] = table.concat(list)
  end
  call('XADD', P .. 'changes', 'MINID', '~', math.max(0, number - 100000), number .. '-0', unpack(row))
end
