// The provider that the tests of the console sign in at: oidc-provider with its development pages, on a free port of this machine.
//
// Reads one line of JSON from its standard input: { clients, port }. Writes one line: the issuer. Ends with its standard input, so it never
// outlives its test. Where its packages are: OIDC_PROVIDER_HOME.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { createServer } from "node:http";
import { createInterface } from "node:readline";

const require = createRequire(`${process.env.OIDC_PROVIDER_HOME}/package.json`);
const { default: Provider } = await import(pathToFileURL(require.resolve("oidc-provider")).href);

// Who signs in as `anna` is a dispatcher. The development pages take any name and any password.
const GROUPS = { anna: ["dispatchers", "drinks"], boss: ["support-desk", "operators"], guest: ["visitors"], nameless: ["dispatchers"] };

const lines = createInterface({ input: process.stdin });
lines.on("close", () => process.exit(0));
const { clients, port } = JSON.parse((await lines[Symbol.asyncIterator]().next()).value);

let provider;
const server = createServer((request, response) => provider.callback()(request, response));
await new Promise((ready) => server.listen(port ?? 0, "127.0.0.1", ready));
const issuer = `http://127.0.0.1:${server.address().port}`;
provider = new Provider(issuer, {
  clients,
  // The claims of a scope stand in the ID token, as with the providers of companies.
  conformIdTokenClaims: false,
  claims: { openid: ["sub"], email: ["email", "email_verified"], groups: ["groups"] },
  findAccount: (_context, id) => ({
    accountId: id,
    claims: () => ({
      sub: id,
      ...(id === "nameless" ? {} : { email: `${id}@example.com`, email_verified: true }),
      groups: GROUPS[id] ?? [],
    }),
  }),
});
console.log(issuer);
