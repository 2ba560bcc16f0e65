import { render } from "preact";
import { causeTable } from "../parts/cause-table";
import "../style/page.css";
import { zone } from "../zone";
import type { ReportData } from "./data";
import { Report } from "./report";

// A reader of the report may live in another time zone: plots use UTC, like its text and most logs.
zone.value = "utc";
const place = document.getElementById("app");
const text = document.getElementById("data")?.textContent;
if (place && text) {
  const data = JSON.parse(text) as ReportData;
  causeTable.value = data.causes;
  render(<Report data={data} />, place);
}
