-- What is opaque comes apart, in order: the uuids in one, then head and body of each task.
local payload = 0

local function next_payloads(number)
  local found = {}
  for i = 1, number do found[i] = ARGV[payload + i] end
  payload = payload + number
  return found
end

local function the_same(number) -- one for all of them
  local found, word = {}, next_payloads(1)[1]
  for i = 1, number do found[i] = word end
  return found
end

local function next_tasks(times)
  local tasks, uuids = {}, uuids_in(next_payloads(1)[1])
  for i, time in ipairs(times) do
    tasks[i], payload = {ARGV[payload + 1], uuids[i], ARGV[payload + 2], time[1], time[2]}, payload + 2
  end
  return tasks
end

-- Several at once: whether their uuids are known is one question.
-- tasks: {head, uuid, body, at, after} each; answers for each with "" if it is new, else whose it is, and how many are new.
local function add_all(tasks)
  flush()
  local new, uuids, holders, fresh = {}, {}, {}, 0
  for i = 1, #tasks do
    local task = tasks[i]
    new[i], uuids[i] = to_task(task[2], task[1], task[4], task[5]), task[2]
  end
  local there = read_fields(IDS, uuids)
  local here = {} -- what this very call has added
  for i = 1, #tasks do
    local uuid, task = uuids[i], tasks[i]
    local holder = add(new[i], task[1], task[3], there[i] or here[uuid])
    if not holder then
      here[uuid], fresh = true, fresh + 1
    end
    holders[i] = holder or ''
  end
  return holders, fresh
end
