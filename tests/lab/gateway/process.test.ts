// The gateway as a process: how it starts, how it ends, and that Envoy ends with it.
import assert from "node:assert/strict";
import { X509Certificate } from "node:crypto";
import { once } from "node:events";
import { mkdirSync, readFileSync, rmdirSync } from "node:fs";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { connect } from "node:tls";
import { Agent, request } from "undici";
import { openAuthority } from "../../../lab/configuration/certificates.ts";
import { freePort } from "../../../lab/ports.ts";
import { systemClock, systemRandom } from "../../../src/domain/clock.ts";
import { writeWhole } from "../../../src/runtime/write-file.ts";
import {
  AUDIENCE,
  agentDouble,
  endGateway,
  eventually,
  type GatewayInput,
  type TestGateway,
  testGateway,
} from "../../support/gateway.ts";
import { cliMain, ROOT, run, start, temporaryFolder, writeFile } from "../../support/temporary.ts";

const MAIN = join(ROOT, "src/cli/main.ts");

/** The issuer is not there: a gateway serves all the same, and refuses who needs a token. */
async function issuerDown(): Promise<GatewayInput["issuer"]> {
  const url = `http://127.0.0.1:${await freePort()}`;
  return { url, jwksUrl: `${url}/jwks`, audience: AUDIENCE };
}

async function started(t: TestContext, input: Partial<GatewayInput> = {}): Promise<TestGateway> {
  const gateway = await testGateway(temporaryFolder(t), { issuer: await issuerDown(), ...input });
  t.after(() => endGateway(gateway));
  return gateway;
}

function envoyOf(gateway: TestGateway): number {
  return Number(readFileSync(join(gateway.folder, "envoy/envoy.pid"), "utf8"));
}

/** A process that has ended but was not collected has no command line either. */
function isAlive(pid: number): boolean {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8") !== "";
  } catch {
    return false;
  }
}

const gone = (pid: number) => eventually(`the end of ${pid}`, () => (isAlive(pid) ? undefined : true));

describe("the gateway's process", () => {
  it("SIGTERM ends the gateway with code 0, and Envoy with it", async (t) => {
    const gateway = await started(t);
    const envoy = envoyOf(gateway);
    assert.ok(isAlive(envoy));
    gateway.running.child.kill("SIGTERM");
    const { code } = await gateway.running.finished;
    assert.equal(code, 0);
    await gone(envoy);
  });

  it("Envoy does not outlive a gateway that is killed", async (t) => {
    const gateway = await started(t);
    const envoy = envoyOf(gateway);
    gateway.running.child.kill("SIGKILL");
    await gateway.running.finished;
    await gone(envoy);
  });

  it("while the state file cannot be written there is none, and the gateway goes on [PLN-5]", async (t) => {
    const gateway = await started(t);
    const before = gateway.state()?.invocation;
    const staging = join(gateway.folder, `state.json.${gateway.running.child.pid}.new`);
    mkdirSync(staging);
    gateway.configure((config) => ({ ...config, quotas: { default: { perMinute: 1, burst: 1 } } }));
    await gateway.running.printed('"event":"state_not_written"');
    assert.equal(gateway.state(), undefined);
    rmdirSync(staging);
    const after = await eventually("the state file", () => gateway.state()?.invocation);
    assert.notEqual(after, before);
  });

  it("the gateway ends with an error when Envoy does", async (t) => {
    const gateway = await started(t);
    process.kill(envoyOf(gateway), "SIGKILL");
    const { code, stdout } = await gateway.running.finished;
    assert.notEqual(code, 0);
    assert.match(stdout, /"event":"envoy_ended"/);
  });

  it("an Envoy of an earlier run is ended before another starts", async (t) => {
    const gateway = await started(t);
    const left = envoyOf(gateway);
    // Stopped, the gateway can neither see nor end anything: as good as gone.
    gateway.running.child.kill("SIGSTOP");
    const again = await testGateway(gateway.folder, gateway.config());
    t.after(() => endGateway(again));
    assert.notEqual(envoyOf(again), left);
    await gone(left);
    gateway.running.child.kill("SIGCONT");
    const { code } = await gateway.running.finished;
    assert.notEqual(code, 0);
  });

  it("of two gateways that start at once on one folder one serves, by the Envoy that is noted", async (t) => {
    const gateway = await started(t);
    // Stopped, it ends only when it is killed: both wait for that.
    process.kill(envoyOf(gateway), "SIGSTOP");
    gateway.running.child.kill("SIGKILL");
    await once(gateway.running.child, "exit");
    const words = [cliMain(), "gateway", "--config", join(gateway.folder, "gateway.yaml")];
    const both = [0, 1].map(() => start(process.execPath, words));
    t.after(() => both.map(({ child }) => child.kill("SIGKILL")));
    const ended = await Promise.race(both.map(({ finished }) => finished));
    assert.match(ended.stdout, /"event":"envoy_ended"/, ended.stderr);
    await eventually("the state file", () => gateway.state());
    assert.ok(isAlive(envoyOf(gateway)));
    for (const { child } of both) child.kill("SIGTERM");
    const codes = await Promise.all(both.map(async ({ finished }) => (await finished).code));
    assert.equal(codes.filter((code) => code === 0).length, 1);
  });

  it("an Envoy of an earlier run goes on serving where none could be started in its place", async (t) => {
    const gateway = await started(t);
    const left = envoyOf(gateway);
    gateway.running.child.kill("SIGSTOP");
    const config = join(gateway.folder, "gateway.yaml");
    const env = { PATH: temporaryFolder(t) };
    const { code, stderr } = await run(process.execPath, [MAIN, "gateway", "--config", config], { env });
    gateway.running.child.kill("SIGCONT");
    assert.notEqual(code, 0);
    assert.match(stderr, /setpriv/);
    assert.ok(isAlive(left));
  });

  it("with its issuer down the gateway starts, serves cards and refuses calls", async (t) => {
    const agent = await agentDouble();
    t.after(() => agent.close());
    const gateway = await started(t, {
      agents: {
        "docs-qa": {
          upstream: agent.url,
          cardPath: "/card.json",
          invokePath: "/rpc",
          clients: ["org-b-client"],
        },
      },
    });
    assert.equal((await fetch(`${gateway.url}/card.json`)).status, 200);
    assert.equal((await fetch(`${gateway.url}/rpc`, { method: "POST" })).status, 401);
  });

  it("an agent's HTTP+JSON operations are served below the longest path", async (t) => {
    const agent = await agentDouble();
    t.after(() => agent.close());
    const invokePath = `/${"a".repeat(511)}`;
    const gateway = await started(t, {
      agents: { "docs-qa": { upstream: agent.url, invokePath, httpJson: true, clients: ["org-b-client"] } },
    });
    assert.equal((await fetch(`${gateway.url}${invokePath}/message:send`, { method: "POST" })).status, 401);
  });

  it("the listener can speak TLS, by a certificate that is renewed while it runs, and the key set can be fetched over it", async (t) => {
    const folder = temporaryFolder(t);
    const authority = await openAuthority(
      { certificate: join(folder, "ca.pem"), privateKey: join(folder, "ca.key") },
      { clock: systemClock, random: systemRandom },
    );
    const renew = async () => {
      const { certificate, privateKey } = await authority.issue("gateway.test");
      writeWhole(join(folder, "gateway.key"), privateKey, 0o600);
      writeWhole(join(folder, "gateway.crt"), certificate, 0o644);
      return new X509Certificate(certificate).serialNumber;
    };
    const first = await renew();
    const port = await freePort();
    const gateway = await testGateway(folder, {
      listen: { port, tls: { certificateFile: "gateway.crt", keyFile: "gateway.key" } },
      issuer: {
        url: "https://id.test",
        jwksUrl: "https://localhost:1/jwks",
        audience: AUDIENCE,
        caFile: "ca.pem",
      },
    });
    t.after(() => endGateway(gateway));
    const dispatcher = new Agent({ connect: { ca: authority.certificate, servername: "gateway.test" } });
    t.after(() => dispatcher.close());
    const response = await request(`https://127.0.0.1:${port}/nothing`, { dispatcher });
    assert.equal(response.statusCode, 404);
    const served = async () => {
      const socket = connect({ port, ca: authority.certificate, servername: "gateway.test" });
      await once(socket, "secureConnect");
      const { serialNumber } = socket.getPeerCertificate();
      socket.destroy();
      return serialNumber;
    };
    assert.equal(await served(), first);
    const renewed = await renew();
    await eventually("the renewed certificate", async () =>
      (await served()) === renewed ? true : undefined,
    );
  });

  it("an invalid configuration ends the command with code 2, line and hint", async (t) => {
    const file = join(temporaryFolder(t), "gateway.yaml");
    writeFile(file, "version: 1\nlisten: {port: 0}\n");
    const { code, stderr } = await run(process.execPath, [MAIN, "gateway", "--config", file]);
    assert.equal(code, 2);
    assert.match(stderr, /gateway\.yaml:2: listen\.port/);
    assert.match(stderr, /hint: /);
  });

  it("a port that is taken ends the command with an error", async (t) => {
    const gateway = await started(t);
    const { adminPort } = gateway.config();
    const folder = temporaryFolder(t);
    const taken = { ...gateway.config(), adminPort };
    writeFile(join(folder, "gateway.yaml"), JSON.stringify(taken));
    const { code } = await run(process.execPath, [MAIN, "gateway", "--config", join(folder, "gateway.yaml")]);
    assert.notEqual(code, 0);
  });
});
