-- Putting back what is missing, for repair and rebuild; prepended after insert.lua and places.lua. Never removes, never disturbs what
-- is on its way.

local FINE = 3

-- `items` as for places.lua; answers one code per item: 1 inserted, 2 moved earlier, 3 fine, 5 dead.
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
