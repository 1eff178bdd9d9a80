{{/* What all pods of the chart have in common: Pod Security "restricted", a read-only root, quick leave of a dead node. */}}

{{- define "runyard.pod.security" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "runyard.container.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* (dict "root" $ "component" "operator" "part" .Values.operator) -> labels and annotations of a pod. Nothing here
follows the chart's version: a pod is replaced only when what it runs changes. */}}
{{- define "runyard.pod.metadata" -}}
labels:
  {{- include "runyard.selector" . | nindent 2 }}
{{- with .part.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* (dict "root" $ "part" .Values.operator) -> scheduling and pull secrets of a pod. */}}
{{- define "runyard.pod.placement" -}}
{{- with .root.Values.images.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .part.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .part.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .part.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
tolerations:
  - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 10}
  - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 10}
  {{- with .part.tolerations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* (dict "root" $ "component" "gateway") -> replicas of one revision spread over nodes, then over zones. */}}
{{- define "runyard.pod.spread" -}}
topologySpreadConstraints:
{{- range $key := list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ $key }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "runyard.selector" $ | nindent 8 }}
    matchLabelKeys: [pod-template-hash]
{{- end }}
{{- end }}

{{/* (dict "root" $ "variable" "RUNYARD_DATABASE_URL" "principal" "gateway") -> one env entry with that principal's URL. */}}
{{- define "runyard.databaseUrl" -}}
- name: {{ .variable }}
  valueFrom:
    secretKeyRef:
      name: {{ include "runyard.database.secret" .root }}
      key: {{ .principal }}-url
{{- end }}

{{/* How a service logs. */}}
{{- define "runyard.logs" -}}
- name: RUNYARD_LOG_FORMAT
  value: {{ .Values.logs.format }}
- name: RUNYARD_LOG_LEVEL
  value: {{ .Values.logs.level }}
{{- end }}
