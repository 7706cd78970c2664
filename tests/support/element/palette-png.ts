// Makes a screenshot a PNG of 256 colours (PNG specification, ISO/IEC 15948), a third as long: the commonest colours stay,
// each other one becomes the nearest of them.
import { crc32, deflateSync, inflateSync } from "node:zlib";

const SIGNATURE = Buffer.from("\x89PNG\r\n\x1a\n", "latin1");
const COLOURS_MAX = 256;
const CHANNELS: Readonly<Record<number, number>> = { 2: 3, 6: 4 };

interface Chunk {
  readonly type: string;
  readonly data: Buffer;
}

/** @param png true colour of 8 bits, not interlaced, as browsers write it */
export function withPalette(png: Buffer): Buffer {
  const { width, height, colours } = readPixels(png);
  const counts = new Map<number, number>();
  for (const colour of colours) counts.set(colour, (counts.get(colour) ?? 0) + 1);
  const palette = [...counts].sort((one, other) => other[1] - one[1]).map(([colour]) => colour);
  palette.length = Math.min(palette.length, COLOURS_MAX);
  const indices = new Map([...counts.keys()].map((colour) => [colour, nearest(palette, colour)]));
  const rows = Buffer.alloc(height * (width + 1));
  for (const [at, colour] of colours.entries()) {
    rows[Math.floor(at / width) * (width + 1) + 1 + (at % width)] = indices.get(colour) ?? 0;
  }
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header[8] = 8; // bits of an index
  header[9] = 3; // indexed colour
  const listed = Buffer.from(palette.flatMap(channelsOf));
  return Buffer.concat([
    SIGNATURE,
    ...[
      { type: "IHDR", data: header },
      { type: "PLTE", data: listed },
      { type: "IDAT", data: deflateSync(rows, { level: 9 }) },
      { type: "IEND", data: Buffer.alloc(0) },
    ].map(writeChunk),
  ]);
}

const channelsOf = (colour: number) => [colour >> 16, (colour >> 8) & 255, colour & 255];

function nearest(palette: readonly number[], colour: number): number {
  const wanted = channelsOf(colour);
  const distances = palette.map((one) =>
    channelsOf(one).reduce((sum, channel, index) => sum + (channel - (wanted[index] ?? 0)) ** 2, 0),
  );
  return distances.indexOf(Math.min(...distances));
}

function readPixels(png: Buffer) {
  const chunks = readChunks(png);
  const header = chunks.find(({ type }) => type === "IHDR")?.data ?? Buffer.alloc(13);
  const [width, height] = [header.readUInt32BE(0), header.readUInt32BE(4)];
  const channels = CHANNELS[header[9] ?? 0];
  if (header[8] !== 8 || channels === undefined || header[12] !== 0)
    throw new TypeError("another kind of PNG");
  const compressed = Buffer.concat(chunks.filter(({ type }) => type === "IDAT").map(({ data }) => data));
  const bytes = unfilter(inflateSync(compressed), width * channels, channels);
  const colours = Array.from({ length: width * height }, (_, at) => bytes.readUIntBE(at * channels, 3));
  return { width, height, colours };
}

/** Undoes the filters of the rows, each of which begins with the number of its filter. */
function unfilter(filtered: Buffer, rowBytes: number, channels: number): Buffer {
  const rows = filtered.length / (rowBytes + 1);
  const bytes = Buffer.alloc(rows * rowBytes);
  for (let row = 0; row < rows; row += 1) {
    const filter = filtered[row * (rowBytes + 1)];
    for (let at = 0; at < rowBytes; at += 1) {
      const here = row * rowBytes + at;
      const left = at < channels ? 0 : (bytes[here - channels] ?? 0);
      const up = row === 0 ? 0 : (bytes[here - rowBytes] ?? 0);
      const corner = at < channels || row === 0 ? 0 : (bytes[here - rowBytes - channels] ?? 0);
      const predicted = [0, left, up, (left + up) >> 1, paeth(left, up, corner)][filter ?? 0] ?? 0;
      bytes[here] = (filtered[row * (rowBytes + 1) + 1 + at] ?? 0) + predicted;
    }
  }
  return bytes;
}

function paeth(left: number, up: number, corner: number): number {
  const estimate = left + up - corner;
  const [toLeft, toUp, toCorner] = [left, up, corner].map((value) => Math.abs(estimate - value)) as [
    number,
    number,
    number,
  ];
  if (toLeft <= toUp && toLeft <= toCorner) return left;
  return toUp <= toCorner ? up : corner;
}

function readChunks(png: Buffer): Chunk[] {
  const chunks: Chunk[] = [];
  for (let at = SIGNATURE.length; at < png.length; ) {
    const length = png.readUInt32BE(at);
    chunks.push({
      type: png.toString("latin1", at + 4, at + 8),
      data: png.subarray(at + 8, at + 8 + length),
    });
    at += length + 12;
  }
  return chunks;
}

function writeChunk({ type, data }: Chunk): Buffer {
  const body = Buffer.concat([Buffer.from(type, "latin1"), data]);
  const [length, check] = [Buffer.alloc(4), Buffer.alloc(4)];
  length.writeUInt32BE(data.length);
  check.writeUInt32BE(crc32(body));
  return Buffer.concat([length, body, check]);
}
