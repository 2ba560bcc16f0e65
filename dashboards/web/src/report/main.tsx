import { render } from "preact";
import "../style/page.css";
import { zone } from "../zone";
import type { ReportData } from "./data";
import { Report } from "./report";

// A reader of the report may live in another time zone: plots use UTC, like its text and most logs.
zone.value = "utc";
const place = document.getElementById("app");
const text = document.getElementById("data")?.textContent;
if (place && text) render(<Report data={JSON.parse(text) as ReportData} />, place);
