import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { isPassing, isRolledBack, serverUrls } from "../../../../src/bridge/ledger/postgres-servers.ts";
import { ROOT } from "../../../support/temporary.ts";

describe("serverUrls", () => {
  it("names each server that the URL of a database lists [DEL-9]", () => {
    assert.deepEqual(serverUrls("postgres://u:p%40,@one:5432,two,[::1]:5433/db?sslmode=verify-full"), [
      "postgres://u:p%40,@one:5432/db?sslmode=verify-full",
      "postgres://u:p%40,@two/db?sslmode=verify-full",
      "postgres://u:p%40,@[::1]:5433/db?sslmode=verify-full",
    ]);
    assert.deepEqual(serverUrls("postgresql://one,two"), ["postgresql://one", "postgresql://two"]);
  });

  it("leaves the URL of one server as it is", () => {
    for (const url of [
      "postgres://u:a,b@one/db",
      "postgres:///db?host=/run/a,b",
      "postgres://one/db?options=a,b",
    ]) {
      assert.deepEqual(serverUrls(url), [url]);
    }
  });
});

const failure = (code?: string, message = "") => Object.assign(new Error(message), code && { code });

describe("isRolledBack", () => {
  const TERMINATED = failure(undefined, "Connection terminated unexpectedly");

  it("is true of what the server rolled back, and of what the driver did not send", () => {
    for (const isOpen of [false, true]) {
      for (const code of ["40001", "40P01", "25P03"]) assert.ok(isRolledBack(failure(code), isOpen), code);
      for (const message of [
        "Client has encountered a connection error and is not queryable",
        "Client was closed and is not queryable",
      ]) {
        assert.ok(isRolledBack(failure(undefined, message), isOpen), message);
      }
    }
  });

  it("is true of a connection that ended, unless COMMIT may have been made", () => {
    for (const error of [TERMINATED, failure("57P01"), failure("08006"), failure("ECONNRESET")]) {
      assert.ok(isRolledBack(error, true), String(error));
      assert.ok(!isRolledBack(error, false), String(error));
    }
  });

  it("is false of a refusal, and of a wait that took its time", () => {
    const timeouts = ["Query read timeout", "timeout expired"].map((message) => failure(undefined, message));
    for (const error of [failure("23505"), failure("25006"), failure("53300"), ...timeouts, undefined]) {
      assert.ok(!isRolledBack(error, true), String(error));
    }
  });
});

describe("isPassing", () => {
  it("says which failures of a database pass by themselves", () => {
    for (const code of [
      "08006",
      "57P01",
      "57P03",
      "25006",
      "25P03",
      "40001",
      "40P01",
      "53300",
      "ECONNREFUSED",
    ]) {
      assert.ok(isPassing(failure(code)), code);
    }
    for (const code of ["23505", "42601", "28P01", "55000", "57014", "internal"]) {
      assert.ok(!isPassing(failure(code)), code);
    }
    for (const message of [
      "Connection terminated unexpectedly",
      "Client has encountered a connection error and is not queryable",
      "Query read timeout",
      "timeout expired",
    ]) {
      assert.ok(isPassing(failure(undefined, message)), message);
    }
    assert.ok(!isPassing(failure(undefined, "another")));
    assert.ok(!isPassing(undefined));
  });
});

describe("connections of the product", () => {
  it("are all made where statements have a timeout in this process [DEL-9]", () => {
    const makers = readdirSync(join(ROOT, "src"), { recursive: true, encoding: "utf8" })
      .filter((name) => name.endsWith(".ts"))
      .filter((name) => /\bnew (?:pg\.)?(?:Pool|Client)\(|extends (?:Pool|Client)\b/.test(text(name)));
    assert.deepEqual(makers.sort(), [
      "bridge/ledger/postgres-servers.ts",
      "federation/offboarding/duties/homeserver-row-counts.ts",
    ]);
    for (const maker of makers) assert.match(text(maker), /query_timeout: /);
  });
});

const text = (name: string): string => readFileSync(join(ROOT, "src", name), "utf8");
