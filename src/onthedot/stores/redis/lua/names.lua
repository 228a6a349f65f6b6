-- names: uuid and source of records by number, for whoever reads the change log. Reads only.
-- KEYS[1]: prefix. ARGV: now, seqs.
-- Returns: uuid and source in turn, "" for those that are gone.
-- uses: call
local seqs, names = {}, {}
for i = 2, #ARGV do seqs[#seqs + 1] = ARGV[i] end
for i, asked in ipairs(several(TASK, seqs)) do
  local head = asked and select(2, cmsgpack.unpack_one(asked, 16)) or {'', ''}
  names[2 * i - 1], names[2 * i] = head[1], head[2]
end
return names
