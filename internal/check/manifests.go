// SPDX-License-Identifier: Apache-2.0

package check

func judgeManifests(f Facts) []Finding {
	var found []Finding
	for _, m := range f.Manifests {
		switch {
		case m.Refused != "":
			found = append(found, ManifestTaken.find(Failed, "mend the manifest", "%s would be refused: %s", m.Name, m.Refused))
		case m.Why != "":
			found = append(found, ManifestTaken.find(Unknown, m.Hint, "%s: cannot tell: %s", m.Name, m.Why))
		case m.Idle != "":
			found = append(found, ManifestTaken.find(Warning, "leave the fields out, or write what stands there instead", "%s would be taken, with fields that do nothing: %s", m.Name, m.Idle))
		case m.Open:
			found = append(found, ManifestTaken.find(OK, "", "%s would be taken; its Workflow and its inputs were not looked at", m.Name))
		default:
			found = append(found, ManifestTaken.find(OK, "", "%s would be taken", m.Name))
		}
	}
	return found
}
