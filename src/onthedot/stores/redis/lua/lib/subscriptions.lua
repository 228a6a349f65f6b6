-- Subscriptions: the sessions that hear of a task, and the tasks that a session hears of. The history of such a task has a mark,
-- so that the end of any other reads nothing.
-- uses: tallies
local function end_subscriptions(seqs, uuids) -- of tasks that have ended: their sessions hear of them for the last time
  for i = 1, #seqs do
    local subscribers = P .. 'subscribers:' .. number_of(seqs[i])
    for _, session in ipairs(call('SMEMBERS', subscribers)) do
      append(ended, session, uuids[i])
      call('SREM', P .. 'subscriptions:' .. session, seqs[i])
    end
    call('DEL', subscribers)
  end
end
