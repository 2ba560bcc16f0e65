/**
 * A table as a Parquet file (format of parquet.apache.org), written in the browser: one row group, one plain page a
 * column, not compressed. A column whose cells are all numbers is DOUBLE, any other UTF-8 text. Numbers that are
 * not finite are NaN. Pure.
 */
import type { Cell } from "./csv";

const MAGIC = "PAR1";
const utf8 = new TextEncoder();

/** Numbers of the format's own lists. */
const DOUBLE = 5;
const BYTE_ARRAY = 6;
const REQUIRED = 0;
const UTF8 = 0;
const PLAIN = 0;
const RLE = 3;
const UNCOMPRESSED = 0;
const DATA_PAGE = 0;

/** Bytes that grow. */
class Bytes {
  private room = new Uint8Array(1024);
  length = 0;

  add(bytes: Uint8Array): void {
    while (this.length + bytes.length > this.room.length) {
      const wider = new Uint8Array(2 * this.room.length);
      wider.set(this.room);
      this.room = wider;
    }
    this.room.set(bytes, this.length);
    this.length += bytes.length;
  }

  text(text: string): void {
    this.add(utf8.encode(text));
  }

  int32(value: number): void {
    const bytes = new Uint8Array(4);
    new DataView(bytes.buffer).setInt32(0, value, true);
    this.add(bytes);
  }

  get whole(): Uint8Array<ArrayBuffer> {
    return this.room.slice(0, this.length);
  }
}

/** Thrift's compact protocol, as far as Parquet's headers need it. */
const I32 = 5;
const I64 = 6;
const BINARY = 8;
const LIST = 9;
const STRUCT = 12;

class Thrift {
  readonly bytes = new Bytes();
  private last = 0;

  private varint(value: number): void {
    // Not by shifts: places in a file may be past 32 bits.
    let rest = value;
    const out: number[] = [];
    while (rest >= 128) {
      out.push((rest % 128) + 128);
      rest = Math.floor(rest / 128);
    }
    this.bytes.add(Uint8Array.from([...out, rest]));
  }

  private field(id: number, type: number): void {
    this.bytes.add(Uint8Array.of(((id - this.last) << 4) | type));
    this.last = id;
  }

  /** All numbers here are 0 or more: their zigzag form is twice the number. */
  number(id: number, value: number, type: typeof I32 | typeof I64 = I32): this {
    this.field(id, type);
    this.varint(2 * value);
    return this;
  }

  private inline(text: string): void {
    const bytes = utf8.encode(text);
    this.varint(bytes.length);
    this.bytes.add(bytes);
  }

  text(id: number, text: string): this {
    this.field(id, BINARY);
    this.inline(text);
    return this;
  }

  struct(id: number, inner: Thrift): this {
    this.field(id, STRUCT);
    this.bytes.add(inner.end());
    return this;
  }

  list(id: number, type: number, count: number): this {
    this.field(id, LIST);
    if (count < 15) this.bytes.add(Uint8Array.of((count << 4) | type));
    else {
      this.bytes.add(Uint8Array.of(0xf0 | type));
      this.varint(count);
    }
    return this;
  }

  structs(id: number, inner: readonly Thrift[]): this {
    this.list(id, STRUCT, inner.length);
    for (const one of inner) this.bytes.add(one.end());
    return this;
  }

  numbers(id: number, values: readonly number[]): this {
    this.list(id, I32, values.length);
    for (const value of values) this.varint(2 * value);
    return this;
  }

  texts(id: number, texts: readonly string[]): this {
    this.list(id, BINARY, texts.length);
    for (const text of texts) this.inline(text);
    return this;
  }

  end(): Uint8Array<ArrayBuffer> {
    this.bytes.add(Uint8Array.of(0));
    return this.bytes.whole;
  }
}

function valuesOf(cells: readonly Cell[], isNumber: boolean): Uint8Array<ArrayBuffer> {
  if (isNumber) {
    const view = new DataView(new ArrayBuffer(8 * cells.length));
    cells.forEach((cell, row) => {
      view.setFloat64(8 * row, Number.isFinite(cell) ? Number(cell) : Number.NaN, true);
    });
    return new Uint8Array(view.buffer);
  }
  const bytes = new Bytes();
  for (const cell of cells) {
    const text = utf8.encode(typeof cell === "number" ? numberText(cell) : cell);
    bytes.int32(text.length);
    bytes.add(text);
  }
  return bytes.whole;
}

const numberText = (value: number) => (Number.isFinite(value) ? String(value) : "");

/** Columns are named once: readers refuse a file that has a name twice. */
function unique(names: readonly string[]): string[] {
  const seen = new Map<string, number>();
  return names.map((name) => {
    const before = seen.get(name) ?? 0;
    seen.set(name, before + 1);
    return before ? `${name} ${before + 1}` : name;
  });
}

export function parquetOf(
  heading: readonly string[],
  rows: readonly (readonly Cell[])[],
): Uint8Array<ArrayBuffer> {
  const file = new Bytes();
  file.text(MAGIC);
  const schema: Thrift[] = [new Thrift().text(4, "table").number(5, heading.length)];
  const chunks: Thrift[] = [];
  let total = 0;
  unique(heading).forEach((name, place) => {
    const cells = rows.map((row) => row[place] ?? "");
    const isNumber = cells.length > 0 && cells.every((cell) => typeof cell === "number");
    const type = isNumber ? DOUBLE : BYTE_ARRAY;
    const element = new Thrift().number(1, type).number(3, REQUIRED).text(4, name);
    schema.push(isNumber ? element : element.number(6, UTF8));
    const values = valuesOf(cells, isNumber);
    const page = new Thrift()
      .number(1, DATA_PAGE)
      .number(2, values.length)
      .number(3, values.length)
      .struct(5, new Thrift().number(1, rows.length).number(2, PLAIN).number(3, RLE).number(4, RLE))
      .end();
    const at = file.length;
    file.add(page);
    file.add(values);
    const size = page.length + values.length;
    total += size;
    const meta = new Thrift()
      .number(1, type)
      .numbers(2, [PLAIN])
      .texts(3, [name])
      .number(4, UNCOMPRESSED)
      .number(5, rows.length, I64)
      .number(6, size, I64)
      .number(7, size, I64)
      .number(9, at, I64);
    chunks.push(new Thrift().number(2, at, I64).struct(3, meta));
  });
  const group = new Thrift().structs(1, chunks).number(2, total, I64).number(3, rows.length, I64);
  const footer = new Thrift()
    .number(1, 1)
    .structs(2, schema)
    .number(3, rows.length, I64)
    .structs(4, [group])
    .text(6, "Fabricscope")
    .end();
  file.add(footer);
  file.int32(footer.length);
  file.text(MAGIC);
  return file.whole;
}
