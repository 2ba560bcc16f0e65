import { expect, it } from "vitest";
import { csvOf, fileNameOf, isoOf } from "./csv";

it("cells with commas, quotes and line breaks are quoted", () => {
  expect(
    csvOf(
      ["Job", "Step"],
      [
        ['a,"b"', 1.5],
        ["two\nlines", Number.NaN],
      ],
    ),
  ).toBe('Job,Step\r\n"a,""b""",1.5\r\n"two\nlines",\r\n');
});

it("a name from outside is not run as a formula; a number stays one", () => {
  expect(csvOf(["A"], [["=cmd()"], ["+1"], ["@x"], [-3]])).toBe(
    "A\r\n'=cmd()\r\n'+1\r\n'@x\r\n-3\r\n",
  );
});

it("moments and file names are plain", () => {
  expect(isoOf(1_794_733_540)).toBe("2026-11-15T09:05:40Z");
  expect(isoOf(Number.NaN)).toBe("");
  expect(fileNameOf("Links by paused, the worst first")).toBe(
    "links-by-paused-the-worst-first.csv",
  );
});
