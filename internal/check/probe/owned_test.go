// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/internal/ownership"
)

const member = "pod-0.abc"

func memberLease() *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: shippedNamespace, Name: ownership.LeasePrefix + member, Labels: map[string]string{ownership.LeaseLabel: ownership.MemberLease},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: new(member), RenewTime: new(metav1.NewMicroTime(time.Now().Add(time.Hour))), LeaseDurationSeconds: new(int32(15))},
	}
}

// ownedBy is the object in which all partitions but one belong to the member; -1: all.
func ownedBy(but int) (*corev1.ConfigMap, error) {
	var partitions [][2]int
	for p := range ownership.Partitions {
		at := 0
		if p == but {
			at = -1
		}
		partitions = append(partitions, [2]int{at, p + 1})
	}
	raw, err := json.Marshal(map[string]any{"version": 1, "installation": "i", "prefix": "syncopate", "origin": "o", "owners": []string{member}, "partitions": partitions})
	if err != nil {
		return nil, err
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: shippedNamespace, Name: ownership.ObjectName},
		Data:       map[string]string{"ownership.json": string(raw), "checksum": fmt.Sprintf("%08x", crc32.ChecksumIEEE(raw))},
	}, nil
}

func owned(ctx context.Context) error {
	object, err := ownedBy(-1)
	if err != nil {
		return err
	}
	for _, o := range []client.Object{object, memberLease()} {
		if err := suite.client.Create(ctx, o); err != nil {
			return err
		}
	}
	return nil
}
