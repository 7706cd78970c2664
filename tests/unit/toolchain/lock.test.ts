// package-lock.json for every platform.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { completeLock, readLock } from "../../../tasks/lock.ts";

describe("lock", () => {
  it("a platform's package that npm left out of the lock is added with its platform", () => {
    const lock = {
      packages: {
        "": {},
        "node_modules/tool": {
          dev: true,
          optionalDependencies: {
            "@tool/linux-x64": "1.2.3",
            "@tool/linux-arm64-musl": "1.2.3",
            "@tool/darwin-arm64": "1.2.3",
            "not-a-platform": "1.2.3",
            "@other/win32-x64": "^1.0.0",
          },
        },
        "node_modules/@tool/linux-x64": { version: "1.2.3", os: ["linux"] },
      },
    };
    assert.deepEqual(completeLock(lock), ["@tool/linux-arm64-musl", "@tool/darwin-arm64"]);
    const packages: Record<string, unknown> = lock.packages;
    assert.deepEqual(packages["node_modules/@tool/linux-arm64-musl"], {
      version: "1.2.3",
      cpu: ["arm64"],
      dev: true,
      optional: true,
      libc: ["musl"],
      os: ["linux"],
    });
    assert.deepEqual(packages["node_modules/@tool/linux-x64"], { version: "1.2.3", os: ["linux"] });
    assert.deepEqual(completeLock(lock), []);
  });

  it("this repository's lock is complete", () => {
    assert.deepEqual(completeLock(readLock()), []);
  });
});
