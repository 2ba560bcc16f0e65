import { render } from "preact";
import "../style/page.css";
import { zone } from "../zone";
import type { ReportData } from "./data";
import { Report } from "./report";

// Whoever is sent a report may live elsewhere: its times are those of its words, and of most logs.
zone.value = "utc";
const place = document.getElementById("app");
const text = document.getElementById("data")?.textContent;
if (place && text) render(<Report data={JSON.parse(text) as ReportData} />, place);
