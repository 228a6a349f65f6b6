-- Signals: payloads by id and numbers by id, under each name; and the times until which they are kept, of all names.
-- uses: prelude
local SIGNALS, SIGNAL_ORDER, SIGNAL_UNTIL = P .. 'signals:', P .. 'signal_order:', P .. 'signal_until'

local function signal_entry(name, id) return struct.pack('>I2', #name) .. name .. id end

local function signal_of(entry) -- name and id
  local length = struct.unpack('>I2', entry)
  return entry:sub(3, 2 + length), entry:sub(3 + length)
end

local function are_kept(name, ids) -- true or false for each: those past their time are no longer kept
  local entries, kept = {}, {}
  for i = 1, #ids do entries[i] = signal_entry(name, ids[i]) end
  for i = 1, #entries, 4000 do
    for _, time in ipairs(call('ZMSCORE', SIGNAL_UNTIL, unpack(entries, i, math.min(i + 3999, #entries)))) do
      kept[#kept + 1] = time and tonumber(time) > now or false
    end
  end
  return kept
end
