/** `#/incident`: all incidents; `#/incident/ID`: the story of one. */
import { route } from "../route";
import { IncidentList } from "./incident-list";
import { IncidentStory } from "./incident-story";

export default function IncidentView() {
  const id = route.value.path[1];
  return id ? <IncidentStory id={id} key={id} /> : <IncidentList />;
}
