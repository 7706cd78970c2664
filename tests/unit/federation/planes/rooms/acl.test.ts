// The room ACL that is rendered, and whom it denies by the rule that homeservers enforce.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import {
  aclAllow,
  deniedByEnforcement,
  enforcementOf,
  type FoundAcl,
  refuseUnsafeAcl,
  serverAcl,
} from "../../../../../src/federation/planes/rooms/acl.ts";

const OWN = "org-a.test:18448";

describe("room ACLs", () => {
  it("an ACL names every server with its port and without, and refuses IP literals [PLN-2]", () => {
    assert.deepEqual(serverAcl(aclAllow([OWN, "Org-D.test", "[2001:db8::1]:8448"])), {
      allow: ["Org-D.test", "[2001:db8::1]", "[2001:db8::1]:8448", "org-a.test", OWN, "org-d.test"].sort(),
      deny: [],
      allow_ip_literals: false,
    });
  });

  it("names are compared without case as homeservers do it, in which a long s is an s and a Kelvin sign a k [PLN-2]", () => {
    for (const name of ["ORG-B.TEST", "org-b.te\u017ft", "*.te\u017f?"]) {
      assert.equal(deniedByEnforcement({ allow: [name] }, "org-b.test"), false, name);
      assert.equal(deniedByEnforcement({ allow: ["*"], deny: [name] }, "org-b.test"), true, name);
    }
    assert.equal(deniedByEnforcement({ allow: ["\u212a.test"] }, "k.test"), false);
  });

  it("an ACL that names a server with its port alone denies that server, and is refused [PLN-2]", () => {
    const locked = serverAcl([OWN]);
    assert.equal(deniedByEnforcement(locked, OWN), true);
    assert.throws(() => refuseUnsafeAcl(locked, [OWN]), { code: "unsafe_acl" });
    refuseUnsafeAcl(serverAcl(aclAllow([OWN])), [OWN]);
  });

  it("an ACL that denies a retained server is refused, and the server is named [PLN-2]", () => {
    const allow = aclAllow([OWN, "org-d.test"]);
    const cases: readonly (readonly [FoundAcl, string])[] = [
      [{ allow, deny: ["org-d.test"], allow_ip_literals: false }, "org-d.test"],
      [{ allow, deny: ["*.TEST"], allow_ip_literals: false }, OWN],
      [{ allow: allow.filter((name) => !name.startsWith("org-d")), deny: [] }, "org-d.test"],
      [{ allow: ["*"], deny: [], allow_ip_literals: false }, "127.0.0.1:8448"],
    ];
    for (const [acl, server] of cases) {
      const found = { deny: [], allow_ip_literals: false, ...acl } as Parameters<typeof refuseUnsafeAcl>[0];
      assert.throws(
        () => refuseUnsafeAcl(found, [OWN, "org-d.test", server]),
        (error: Error) => error.message.includes(server),
      );
    }
  });

  it("an ACL that others wrote is read as a homeserver reads it [PLN-2]", () => {
    assert.equal(deniedByEnforcement({}, OWN), true, "an absent allow admits nobody");
    assert.equal(deniedByEnforcement({ allow: "*" }, OWN), true, "a text is no list");
    assert.equal(deniedByEnforcement({ allow: [1, null, "org-a.test"] }, OWN), false);
    assert.equal(deniedByEnforcement({ allow: ["*"], allow_ip_literals: "no" }, "127.0.0.1"), false);
    assert.equal(deniedByEnforcement({ allow: ["*"], allow_ip_literals: false }, "[::1]:8448"), true);
  });

  /** The rule, written without care for speed. */
  function naivelyDenied(
    acl: { allow: string[]; deny: string[]; allow_ip_literals: boolean },
    server: string,
  ) {
    const host = server.replace(/:\d+$/, "");
    const matches = (glob: string) => {
      const pattern = [...glob]
        .map((c) => (c === "*" ? ".*" : c === "?" ? "." : c.replace(/[.[\]\\^$+(){}|-]/, "\\$&")))
        .join("");
      return new RegExp(`^${pattern}$`, "i").test(host);
    };
    if (!acl.allow_ip_literals && (host.startsWith("[") || /^\d+\.\d+\.\d+\.\d+$/.test(host))) return true;
    if (acl.deny.some(matches)) return true;
    return !acl.allow.some(matches);
  }

  it("deniedByEnforcement agrees with a plain reading of the specification [PLN-2]", () => {
    const label = fc.constantFrom("a", "b", "ab", "A", "org-a", "org-b", "test");
    const host = fc.oneof(
      fc.array(label, { minLength: 1, maxLength: 3 }).map((labels) => labels.join(".")),
      fc.constantFrom("127.0.0.1", "[::1]"),
    );
    const server = fc.tuple(host, fc.option(fc.nat(65_535))).map(([h, p]) => (p === null ? h : `${h}:${p}`));
    const glob = fc.oneof(
      server,
      fc
        .array(fc.oneof(label, fc.constantFrom("*", "?", ".", "**")), { maxLength: 5 })
        .map((p) => p.join("")),
    );
    const acl = fc.record({
      allow: fc.array(glob, { maxLength: 4 }),
      deny: fc.array(glob, { maxLength: 2 }),
      allow_ip_literals: fc.boolean(),
    });
    fc.assert(
      fc.property(acl, server, (found, name) => {
        assert.equal(deniedByEnforcement(found, name), naivelyDenied(found, name));
      }),
      { numRuns: 3_000 },
    );
  });

  it("whoever fills an ACL with stars keeps nobody busy who compares servers with it [PLN-2]", () => {
    const isDenied = enforcementOf({
      allow: ["*"],
      deny: [`${"*".repeat(59_000)}!`, `${"*.".repeat(29_000)}!`],
    });
    const begun = performance.now();
    for (let number = 0; number < 500; number++) assert.equal(isDenied(`server-${number}.test`), false);
    assert.ok(performance.now() - begun < 1_000);
    assert.equal(
      deniedByEnforcement({ allow: ["*"], deny: [`o${"*".repeat(59_000)}t`] }, "org-b.test"),
      true,
    );
  });

  it("an ACL rendered for some servers admits exactly those [PLN-2]", () => {
    const server = fc
      .tuple(fc.integer({ min: 0, max: 40 }), fc.option(fc.constant(8_448)))
      .map(([n, port]) => `org-${n}.test${port === null ? "" : `:${port}`}`);
    fc.assert(
      fc.property(
        fc.uniqueArray(server, { selector: (s) => s.replace(/:.*/, "") }),
        server,
        (kept, other) => {
          const acl = serverAcl(aclAllow(kept));
          refuseUnsafeAcl(acl, kept);
          const host = other.replace(/:.*/, "");
          assert.equal(
            deniedByEnforcement(acl, other),
            !kept.some((name) => name.replace(/:.*/, "") === host),
          );
        },
      ),
    );
  });

  it("what moderators deny stays denied where others have filled the list [PLN-2]", () => {
    const servers = [OWN, "org-c.test", "Org-D.test:8448", "org-e.test"];
    const filled = Array.from({ length: 4_000 }, (_, number) => `server-${number}.test`);
    const deny = [...filled, "ORG-D.*", "org-c*"];
    const acl = serverAcl(aclAllow(servers), { allow: ["*"], deny }, [OWN]);
    assert.ok(JSON.stringify(acl).length < 1_000);
    assert.deepEqual(
      servers.map((server) => deniedByEnforcement(acl, server)),
      [false, true, true, false],
    );
    assert.deepEqual(serverAcl(aclAllow(servers), acl), acl, "and it stays as it is");
  });

  it("a hostile pattern in a room's ACL is matched quickly [PLN-2]", () => {
    const acl = { allow: [`${"*a".repeat(2_000)}b`] };
    const begun = process.cpuUsage();
    assert.equal(deniedByEnforcement(acl, "a".repeat(230)), true);
    assert.ok(process.cpuUsage(begun).user / 1_000 < 1_000);
  });
});
