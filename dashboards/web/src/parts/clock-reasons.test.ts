import { describe, expect, test } from "vitest";
import { gravestOf, onMarks, reasonWords } from "./clock-reasons";

describe("why a clock is what it is", () => {
  test("in words, the gravest first", () => {
    expect(gravestOf(0x24)?.words).toBe("clock held down: heat");
    expect(gravestOf(0)).toBeUndefined();
    expect(gravestOf(null)).toBeUndefined();
    expect(reasonWords(0x24)).toBe("clock held down: heat, at its power limit");
    expect(reasonWords(0)).toBe("nothing holds it");
  });

  test("an axis has the reasons that there were and no numbers between", () => {
    const { values, marks } = onMarks([0x4, null, 0, 0x24, 0x40]);
    expect(values).toEqual([1, null, 0, 2, 3]);
    expect(marks.map((mark) => mark.short)).toEqual([
      "full clock",
      "power limit",
      "heat",
      "heat (hw)",
    ]);
    expect(onMarks([null]).marks).toHaveLength(1);
  });
});
