/** `#/job`: all jobs. `#/job/ID`: one of them over time. */
import { route } from "../route";
import { JobDetailView } from "./job-detail";
import { JobListView } from "./job-list";

export default function Job() {
  const id = route.value.path[1];
  return id === undefined ? <JobListView /> : <JobDetailView key={id} id={id} />;
}
