// OpenID Connect provider for the sign-in tests of the console: oidc-provider with its development pages, on localhost only.
//
// It prints its issuer on a line, reads a line with its clients in JSON, and then prints "ready". Each start creates new keys. An
// optional argument is the port to listen on. It exits when its standard input closes, so it never outlives its test.
// OIDC_PROVIDER_HOME is the folder with its packages.
import { generateKeyPairSync, randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const require = createRequire(`${process.env.OIDC_PROVIDER_HOME}/package.json`);
const { default: Provider } = await import(pathToFileURL(require.resolve("oidc-provider")).href);

// The development pages accept any name and any password.
const GROUPS = { anna: ["drinks", "desk"], boss: ["desk", "ops"], guest: ["visitors"], nameless: ["desk"] };

const privateKey = (type, options) => ({
  ...generateKeyPairSync(type, options).privateKey.export({ format: "jwk" }),
  kid: randomUUID(),
  use: "sig",
});

let answer;
const server = createServer((request, response) => answer(request, response));
await new Promise((ready) => server.listen(Number(process.argv[2] ?? 0), "127.0.0.1", ready));
const issuer = `http://127.0.0.1:${server.address().port}`;
console.log(issuer);

const lines = createInterface({ input: process.stdin });
lines.on("close", () => process.exit(0));
lines.once("line", (clients) => {
  const provider = new Provider(issuer, {
    clients: JSON.parse(clients),
    jwks: { keys: [privateKey("rsa", { modulusLength: 2048 }), privateKey("ec", { namedCurve: "P-256" })] },
    cookies: { keys: [randomUUID()] },
    // The ID token contains the claims, as with corporate providers.
    conformIdTokenClaims: false,
    enabledJWA: { idTokenSigningAlgValues: ["RS256", "PS256", "ES256"] },
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
  // The development pages would load a font from another host.
  provider.use(async (context, next) => {
    await next();
    if (typeof context.body === "string") context.body = context.body.replace(/@import [^;]*;/g, "");
  });
  answer = provider.callback();
  console.log("ready");
});
