// scripts/build-clients writes the API's document to openapi.json.
export default {
  input: "openapi.json",
  output: { path: "src/openapi", module: { extension: ".js" } },
  plugins: ["@hey-api/typescript", "@hey-api/sdk", "@hey-api/client-fetch"],
  logs: { file: false },
};
