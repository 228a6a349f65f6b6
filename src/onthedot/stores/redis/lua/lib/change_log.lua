-- The change feed: one stream entry per call, with the seqs of each state.
-- uses: tallies
local transitions, transition_count = {}, 0

local function log_transition(state, seqs, number) -- of tasks that are not retained: 'gone:<state>:<source>' and their uuids
  append(transitions, state, seqs)
  transition_count = transition_count + number
end

local function log_range(state, first, last, number) -- consecutive seqs: only the first and the last are stored
  append(transitions, 'run:' .. state, first .. last)
  transition_count = transition_count + number
end

local function write_transitions()
  if transition_count == 0 then return end
  local number = next_number('transitions', transition_count)
  local row = {'at', at}
  for state, list in pairs(transitions) do
    row[#row + 1] = state
    row[#row + 1] = table.concat(list)
  end
  call('XADD', P .. 'changes', 'MINID', '~', math.max(0, number - 100000), number .. '-0', unpack(row))
end
