/**
 * Two of the same kind side by side:
 *
 *     #/compare?of=jobs&a=llama-70b&b=llama-70b-2&what=step      two jobs, hosts or times on one axis
 *     #/compare/steps/JOB?slow=…&slow_to=…&normal=…&incident=…   slow steps of a job against normal ones
 */
import { route } from "../route";
import { SeriesCompared } from "./compare-series";
import { StepsView } from "./compare-steps";

export default function CompareView() {
  const [, kind, job] = route.value.path;
  return kind === "steps" && job ? <StepsView job={job} key={job} /> : <SeriesCompared />;
}
