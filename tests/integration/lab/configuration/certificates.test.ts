import assert from "node:assert/strict";
import { X509Certificate } from "node:crypto";
import { once } from "node:events";
import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { connect, createServer } from "node:tls";
import { keepCertificate, openAuthority } from "../../../../lab/configuration/certificates.ts";
import { systemRandom } from "../../../../src/domain/clock.ts";
import { ManualClock } from "../../../support/manual-clock.ts";
import { temporaryFolder } from "../../../support/temporary.ts";

const DAY_MS = 86_400_000;

async function setUp(t: TestContext) {
  const folder = temporaryFolder(t);
  const clock = new ManualClock(Date.now());
  const sources = { clock, random: systemRandom };
  const ca = { certificate: join(folder, "ca.pem"), privateKey: join(folder, "ca.key") };
  const server = { certificate: join(folder, "tls.crt"), privateKey: join(folder, "tls.key") };
  const authority = await openAuthority(ca, sources);
  await keepCertificate(authority, "org-a.test", server, clock);
  const read = () => new X509Certificate(readFileSync(server.certificate));
  return { clock, sources, ca, server, authority, read };
}

describe("the lab's certificate authority", () => {
  it("a server's certificate names its host and 127.0.0.1, and comes from the lab's authority", async (t) => {
    const { ca, read } = await setUp(t);
    const issuer = new X509Certificate(readFileSync(ca.certificate));
    const certificate = read();
    assert.equal(certificate.verify(issuer.publicKey), true);
    assert.equal(certificate.checkIssued(issuer), true);
    assert.equal(certificate.checkHost("org-a.test"), "org-a.test");
    assert.equal(certificate.checkIP("127.0.0.1"), "127.0.0.1");
    assert.equal(certificate.checkHost("org-b.test"), undefined);
    assert.equal(certificate.ca, false);
    assert.equal(issuer.ca, true);
  });

  it("a TLS client that trusts the authority alone connects by the host's name", async (t) => {
    const { ca, server } = await setUp(t);
    const listening = createServer({
      key: readFileSync(server.privateKey),
      cert: readFileSync(server.certificate),
    });
    listening.on("secureConnection", (socket) => socket.end("welcome"));
    listening.listen(0, "127.0.0.1");
    await once(listening, "listening");
    t.after(() => listening.close());
    const address = listening.address();
    const socket = connect({
      port: typeof address === "object" && address !== null ? address.port : 0,
      host: "127.0.0.1",
      servername: "org-a.test",
      ca: readFileSync(ca.certificate),
    });
    await once(socket, "secureConnect");
    assert.equal(socket.authorized, true);
    socket.destroy();
  });

  it("authority and certificate are kept from start to start, and private keys are this user's alone", async (t) => {
    const { clock, sources, ca, server, read } = await setUp(t);
    const before = read().fingerprint256;
    const again = await openAuthority(ca, sources);
    await keepCertificate(again, "org-a.test", server, clock);
    assert.equal(read().fingerprint256, before);
    for (const file of [ca.privateKey, server.privateKey]) assert.equal(statSync(file).mode & 0o777, 0o600);
  });

  it("a certificate is renewed by the same authority when less than a month of it is left", async (t) => {
    const { clock, sources, ca, server, read } = await setUp(t);
    const before = read().fingerprint256;
    await clock.advance(370 * DAY_MS);
    await keepCertificate(await openAuthority(ca, sources), "org-a.test", server, clock);
    assert.notEqual(read().fingerprint256, before);
    assert.equal(read().verify(new X509Certificate(readFileSync(ca.certificate)).publicKey), true);
  });
});
