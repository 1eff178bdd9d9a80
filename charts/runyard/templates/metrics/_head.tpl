{{/* (dict "root" $ "component" … "name" … "namespace" …) -> head of a PodMonitor. */}}
{{- define "runyard.podMonitor.head" -}}
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
  labels:
    {{- include "runyard.labels" . | nindent 4 }}
    {{- with .root.Values.metrics.podMonitors.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
