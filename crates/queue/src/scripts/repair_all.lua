-- Inserts missing jobs and moves late ones earlier, for repair and rebuild; prepended after insert.lua and places.lua.
-- Never removes a job, and never changes one that is due in time.

local FINE = 3

-- Repairs `items`, as for places.lua. Returns one code per item: 1 inserted, 2 moved earlier, 3 fine, 5 dead.
local function repair_all(items)
  local is_fine = find_places(items)
  local wanted, at_item, codes = {}, {}, {}
  for i, item in ipairs(items) do
    codes[i] = FINE
    if not is_fine[i] then
      wanted[#wanted + 1] = item
      at_item[#wanted] = i
    end
  end
  for n, code in ipairs(insert_all(wanted)) do codes[at_item[n]] = code end
  return codes
end
