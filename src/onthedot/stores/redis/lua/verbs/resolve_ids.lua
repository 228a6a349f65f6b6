-- names: uuid and source of records by number, for whoever reads the change log. Reads only.
-- KEYS[1]: prefix. ARGV: now, seqs.
-- Returns: uuid and source in turn, "" for those that are gone.
-- uses: prelude write_buffer policies records
local seqs, names = {}, {}
for i = 2, #ARGV do seqs[#seqs + 1] = ARGV[i] end
for i, asked in ipairs(read_fields(TASK, seqs)) do
  local r = asked and headed(seqs[i], asked)
  names[2 * i - 1], names[2 * i] = r and r.uuid or '', r and r.source or ''
end
return names
