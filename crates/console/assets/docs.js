// The reference of the API: renders the document of this server with Redoc, grouped by audience and then by tag.
"use strict";

// Headings of audiences, in their order on the page.
const AUDIENCES = {
  producer: "Producers",
  driver: "Drivers",
  staff: "Staff",
  operator: "Operators",
  admin: "Admins",
  partner: "Partners",
  payment_service: "Payment service",
  voice_provider: "Provider of phone calls",
  everyone: "Everyone",
};

// Gives each operation a tag of its audience, and lists the tags below their audience. Redoc shows `x-tagGroups` as
// the top level of its menu.
function groupByAudience(api) {
  const operations = [...Object.values(api.paths), ...Object.values(api.webhooks)].flatMap(Object.values);
  const groups = new Map(Object.keys(AUDIENCES).map((audience) => [audience, new Set()]));
  for (const operation of operations) {
    const audience = operation["x-audience"];
    const [tag] = operation.tags;
    operation.tags = [`${audience} ${tag}`];
    groups.set(audience, (groups.get(audience) ?? new Set()).add(tag));
  }
  const used = [...groups].filter(([, tags]) => tags.size > 0);
  api.tags = used.flatMap(([audience, tags]) => [...tags].sort().map((tag) => ({ name: `${audience} ${tag}`, "x-displayName": tag })));
  api["x-tagGroups"] = used.map(([audience, tags]) => ({
    name: AUDIENCES[audience] ?? audience,
    tags: [...tags].sort().map((tag) => `${audience} ${tag}`),
  }));
  return api;
}

const VIEWER = {
  // A generator of clients needs the document of the server, without the groups of this page.
  downloadDefinitionUrl: "/openapi.json",
  nativeScrollbars: true,
  showExtensions: ["x-audience", "x-roles"],
};

async function showReference(place) {
  const answer = await fetch("/openapi.json");
  if (!answer.ok) throw new Error(`/openapi.json is answered ${answer.status}`);
  Redoc.init(groupByAudience(await answer.json()), VIEWER, place);
}

const place = document.getElementById("reference");
showReference(place).catch((error) => {
  place.textContent = `The reference cannot be shown: ${error.message}. Reload the page.`;
});
