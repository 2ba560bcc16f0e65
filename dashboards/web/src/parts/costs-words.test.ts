import { describe, expect, it, vi } from "vitest";
import type { Account } from "../api/costs";

vi.stubGlobal("location", { hash: "" });
vi.stubGlobal("addEventListener", () => {});

const { causeWords, priceIn, reservations, weekly, weeksOf } = await import("./costs-words");

const ACCOUNT: Account = {
  by: "culprit",
  from: "2026-11-02T00:00:00Z",
  to: "2026-11-30T00:00:00Z",
  price_per_gpu_hour: 2.5,
  currency: "EUR",
  incidents: 3,
  unmeasured: 0,
  gpu_hours: 40,
  entries: [],
  entries_left_out: 0,
  is_partial: false,
};

describe("priceIn", () => {
  it("takes the reader's own price before the service's", () => {
    const own = { amount: 3, before: "$", after: "" };
    expect(priceIn(ACCOUNT, own)).toBe(own);
    expect(priceIn(ACCOUNT, undefined)).toEqual({ amount: 2.5, before: "", after: "EUR" });
  });

  it("is none where neither has one", () => {
    expect(priceIn({ ...ACCOUNT, price_per_gpu_hour: null }, undefined)).toBeUndefined();
  });
});

describe("weeks", () => {
  it("divide what an account has", () => {
    expect(weeksOf(ACCOUNT)).toBe(4);
    expect(weekly(ACCOUNT.gpu_hours, weeksOf(ACCOUNT))).toBe(10);
  });

  it("make no infinite cost of an account of no time", () => {
    expect(weekly(40, weeksOf({ from: ACCOUNT.to, to: ACCOUNT.to }))).toBe(0);
  });
});

describe("causeWords", () => {
  it("has the reason behind the cause where one is known", () => {
    expect(causeWords({ cause: "slow_link", reason: "unknown" })).toBe("Slow link");
    expect(causeWords({ cause: "slow_link", reason: "cable" })).toBe("Slow link (Cable)");
  });
});

describe("reservations", () => {
  it("always says that sums are an upper end, and what is missing where it is", () => {
    expect(reservations(ACCOUNT)).toHaveLength(1);
    const said = reservations({
      ...ACCOUNT,
      unmeasured: 1,
      is_partial: true,
      entries_left_out: 2,
    }).join(" ");
    expect(said).toContain("1 incident could not be measured");
    expect(said).toContain("the latest");
    expect(said).toContain("2 cheaper lines");
  });
});
