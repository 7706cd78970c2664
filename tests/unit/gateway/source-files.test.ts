// Whatever stands in a followed file, the gateway gets an operator's error or a value that its schema allows.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { sha256Tagged } from "../../../src/domain/digest.ts";
import { DrawbridgeError } from "../../../src/domain/errors.ts";
import { mergeAccessRules } from "../../../src/gateway/merge-access-files.ts";
import { followFiles, loadSources, PARSERS, type Reading } from "../../../src/gateway/source-files.ts";
import { anyFile, HOSTILE } from "../../support/hostile-yaml.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { temporaryFolder, writeFile } from "../../support/temporary.ts";

function reading(content: string | Buffer): Reading {
  const bytes = Buffer.from(content);
  return { file: "/srv/file.yaml", bytes, digest: sha256Tagged(bytes) };
}

/** Of the right form but for single values, so that many of them are taken. */
const invocationFile = fc
  .dictionary(
    fc.constantFrom("docs-qa", "timetable", "Not a name"),
    fc.record({
      upstream: fc.constantFrom("http://127.0.0.1:4100/", "http://127.0.0.1:4200/", "file:///etc"),
      invokePath: fc.constantFrom("/agents/docs-qa/rpc", "/agents/timetable/rpc", "/../x"),
      clients: fc.array(fc.oneof(fc.string({ maxLength: 8 }), fc.constantFrom("*", "org-b-bridge"))),
    }),
    { maxKeys: 2 },
  )
  .map((agents) => {
    const quotas = { default: { perMinute: 60, burst: 20 } };
    return Buffer.from(JSON.stringify({ version: 1, agents, quotas }));
  });

/** The parsed value; undefined when it was refused as an operator's error. */
function parsed<T>(parse: () => T): T | undefined {
  try {
    return parse();
  } catch (error) {
    assert.ok(error instanceof DrawbridgeError, String(error));
    assert.ok(error.hint);
    return undefined;
  }
}

describe("following the gateway's files", () => {
  it("what could not be taken up is tried again less and less often until it is, a new content at once [PLN-5]", async (t) => {
    const folder = temporaryFolder(t);
    const quotas = { default: { perMinute: 60, burst: 20 } };
    const at = "http://127.0.0.1:9000";
    const issuer = { url: at, jwksUrl: at, audience: "urn:org-a" };
    const gateway = { version: 1, listen: { port: 8080 }, adminPort: 9901, issuer };
    writeFile(`${folder}/gateway.yaml`, JSON.stringify(gateway));
    writeFile(`${folder}/publication.yaml`, '{"version":1,"cards":{}}');
    writeFile(`${folder}/invocation.yaml`, JSON.stringify({ version: 1, agents: {}, quotas }));
    const sources = loadSources(`${folder}/gateway.yaml`);
    const [clock, stop, calls] = [new ManualClock(0), new AbortController(), [] as number[]];
    const onChange = async () => calls.push(clock.now()) < 12;
    const following = followFiles(sources, onChange, clock, stop.signal);
    writeFile(`${folder}/publication.yaml`, '{"version":1,"cards":{} }');
    const pass = async (seconds: number) => {
      for (let i = 0; i < seconds; i++) await clock.advance(1_000);
    };
    await pass(300);
    for (const content of [" {}", "{ }", "{}"]) {
      writeFile(`${folder}/publication.yaml`, `{"version":1,"cards":${content}}  `);
      await pass(4);
    }
    await pass(60);
    stop.abort();
    await following;
    const afterFirst = [1, 6, 16, 36, 76, 136, 196, 256];
    assert.deepEqual(
      calls,
      [...afterFirst, 301, 305, 306, 309].map((second) => second * 1_000),
    );
  });
});

describe("reading the gateway's files", () => {
  for (const [name, content] of HOSTILE) {
    it(`a followed file that holds ${name} is refused with a hint`, () => {
      const file = reading(content);
      assert.equal(
        parsed(() => PARSERS.gateway(file)),
        undefined,
      );
      assert.equal(
        parsed(() => PARSERS.invocation(file)),
        undefined,
      );
      assert.equal(
        parsed(() => PARSERS.publication(file)),
        undefined,
      );
    });
  }

  it("random files never crash the reader, and no client is admitted that a file does not name [PLN-5]", () => {
    let admitted = 0;
    fc.assert(
      fc.property(fc.oneof(anyFile, invocationFile), (content) => {
        const file = reading(content);
        parsed(() => PARSERS.gateway(file));
        const cards = parsed(() => PARSERS.publication(file));
        const invocation = parsed(() => PARSERS.invocation(file));
        for (const agent of Object.values(invocation?.value.agents ?? {})) {
          for (const client of agent.clients) {
            assert.ok(content.includes(JSON.stringify(client)), client);
            admitted += 1;
          }
        }
        if (cards !== undefined && invocation !== undefined)
          parsed(() => mergeAccessRules(cards, invocation));
      }),
      { numRuns: 600 },
    );
    assert.ok(admitted > 50, `only ${admitted} clients were admitted`);
  });
});
