import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { IssuerConfigFile } from "../../../src/issuer/config.ts";

const withLifespan = (accessTokenLifespan: string) =>
  IssuerConfigFile.safeParse({
    ...{ version: 1, listen: { port: 8081 }, url: "http://issuer.test", audience: "http://gateway.test" },
    ...{ signingKeys: { file: "keys.json" }, accessTokenLifespan },
  });

describe("the issuer's configuration", () => {
  it("a token life above the longest one that evidence states is refused [PLN-5]", () => {
    assert.equal(withLifespan("300s").success, true);
    assert.deepEqual(
      withLifespan("301s").error?.issues.map(({ path, message }) => [path.join("."), message]),
      [["accessTokenLifespan", "must be whole seconds, at most 300"]],
    );
  });
});
